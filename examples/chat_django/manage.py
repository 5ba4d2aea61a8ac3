"""Django's command line for this example; it makes the tables before it serves."""

from __future__ import annotations

import os
import sys

import django
from django.core.management import call_command, execute_from_command_line

if __name__ == "__main__":
    os.environ.setdefault("DJANGO_SETTINGS_MODULE", "chat.settings")
    if "runserver" in sys.argv:
        django.setup()
        call_command("migrate", run_syncdb=True, verbosity=0)
    execute_from_command_line(sys.argv)
