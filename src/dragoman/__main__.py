"""`python -m dragoman`."""

import sys

from dragoman.cli import main

sys.exit(main())
