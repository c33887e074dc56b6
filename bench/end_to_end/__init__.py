"""Whole crawls of the same pages by ours and by others, measured side by side."""

from __future__ import annotations
