"""Where ledgers keep what keys have used: a file of one machine, or a server that several machines share."""
