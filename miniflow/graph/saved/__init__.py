"""A graph as a folder: `graph.json` and `weights.safetensors`; what is in it is checked before it is used."""
