"""A graph as a folder with one file, `graph.safetensors`; what is in it is checked before it is used."""
