"""Stands for the part of IRON of this name; see docs/iron-simulator.md."""
