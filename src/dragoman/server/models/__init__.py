"""The models of the gateway for clients: their list (`model_list`), and loading and unloading them (`loading`)."""
