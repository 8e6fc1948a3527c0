"""Imported by a design from its folder."""


def sized(text, elements):
    return text.replace("SIZE", str(elements))
