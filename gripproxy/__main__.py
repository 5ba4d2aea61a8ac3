"""Run the command: ``python -m gripproxy``."""

from gripproxy.cli.main import main

raise SystemExit(main())
