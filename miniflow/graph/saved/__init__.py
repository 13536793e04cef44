"""A graph as a folder: `graph.json` and `weights.safetensors`; what stands in it is checked before it is believed."""
