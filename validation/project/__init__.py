"""What a project wants checked: `[tool.isomorph]` in, one `Checked` for each model out."""

from .checking import Checked, check
from .configuration import Model, Project, find_configuration, read_configuration

__all__ = ["Checked", "Model", "Project", "check", "find_configuration", "read_configuration"]
