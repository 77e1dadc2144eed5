"""A `Report` goes in, JSON or terminal text comes out."""

from .model import CaseReport, OutputReport, Report

__all__ = ["CaseReport", "OutputReport", "Report"]
