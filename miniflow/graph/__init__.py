"""nn.Graph: record one step, rewrite the record, replay it."""

from miniflow import amp
from miniflow.graph.block import GraphModule, ProxyModule
from miniflow.graph.config import GraphConfig
from miniflow.graph.graph import Graph
from miniflow.graph.loaded import LoadedGraph

__all__ = ["amp", "Graph", "GraphConfig", "GraphModule", "LoadedGraph", "ProxyModule"]
