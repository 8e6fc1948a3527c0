"""A file of designs that cannot be imported."""

raise RuntimeError("half an import")
