from small_transformers import bert, gpt2, load, minilm, pytorch, sentences, toy  # noqa: F401
