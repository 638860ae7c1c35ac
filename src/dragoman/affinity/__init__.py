"""Prefix affinity: which replica of a model has read most of a prompt already, and is not much busier than the others.

    affinity = PrefixAffinity()
    blocks = prompt_blocks(request)
    choice = affinity.choose(blocks, {"one": 2, "two": 0})     requests in flight of each replica
    affinity.note(blocks, choice.replicas[0])                  when the request is sent

No I/O, clock or randomness, and no salted hash: several processes choose alike.
"""
