"""Texts: token ids, words, tables that a user brings, IMDB and CoLA."""
