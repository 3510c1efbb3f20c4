"""A bidirectional language model whose features CoLA's sentences are read with."""
