"""A simulated CUDA device: what a recorded CPU run of a script would have left, had a device been there.

Nothing in here is a measurement of a GPU, and nothing in here is shared with what it tests: no module of `advisor` is
imported. Standard library and numpy only.

    devices      peaks and costs of three devices, with where each figure is from
    recording    a recorded run: rows of the loop's thread as trees, the steps, what ops read and wrote
    placement    which ops would have run on the device, and where tensors cross the bus
    kernels      the kernels of an op, timed by the roofline of the device
    machine      one host thread, streams, a launch queue, a caching allocator, blocking calls
    collectives  of several ranks: the streams they run on, who waits for them, when they end for all
    enlarged     a recording as if its batch had been larger
    replayed     the host's program: a recorded tree walked on the machine
    kineto       the trace file that Kineto would have written
    run_facts    run.json as capture would have left it beside a device
"""
