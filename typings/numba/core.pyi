from typing import Any

cgutils: Any
types: Any
