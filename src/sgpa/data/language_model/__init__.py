"""A bidirectional language model whose features are inputs of the CoLA task."""
