"""State that outlives a request, behind one interface: in this process, on this machine, or shared by many replicas."""
