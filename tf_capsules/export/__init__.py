"""Trained models as files that serve without this package: SavedModel, LiteRT and ONNX."""

from tf_capsules.export.portable import export_litert, export_onnx
from tf_capsules.export.saved_model import export_saved_model
from tf_capsules.export.serving import version_folder
from tf_capsules.export.text import export_embeddings_saved_model, export_text_saved_model

__all__ = [
    "export_embeddings_saved_model",
    "export_litert",
    "export_onnx",
    "export_saved_model",
    "export_text_saved_model",
    "version_folder",
]
