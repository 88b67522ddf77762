from small_transformers import bert, gpt2, load, minilm, pytorch  # noqa: F401
