"""Finds the program that listens on a TCP port of this machine."""


def port_owner(port: int) -> str:
    """Returns the program that listens on this port, such as `python3 (process 4711)`, or "" if it cannot be found."""
    try:
        import psutil
    except ImportError:
        return ""
    try:
        for one in psutil.net_connections("tcp"):
            if one.laddr and one.laddr.port == port and one.status == psutil.CONN_LISTEN and one.pid:
                return f"{psutil.Process(one.pid).name()} (process {one.pid})"
    except psutil.Error:
        pass  # some systems do not show the programs of other users
    return ""
