from gripproxy.cli import main

raise SystemExit(main())
