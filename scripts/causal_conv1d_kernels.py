"""The installed causal-conv1d as a plugin: `ssmbench run CONFIG --plugin scripts/causal_conv1d_kernels.py`.

Both sides of a comparison then run in one process, in turns, by one timer:

    ssmbench run configs/conv1d-models.json --device cuda --plugin scripts/causal_conv1d_kernels.py

It writes to ssmbench's memory. States of sequences are copied, since its kernels take them with channels innermost,
and that is in its time.
"""

import causal_conv1d  # noqa: F401 # says so if it is missing
import causal_conv1d_calls
import ssmbench


def declare(op):
    why_not, call = causal_conv1d_calls.OPERATIONS[op]

    def unsupported(case):
        if case.axes.get("store") in ("apart", "none"):
            return causal_conv1d_calls.STORES_IN_PLACE
        if case.axes.get("dout_layout", "same") != "same":
            return "causal_conv1d takes dout in the layout of x"
        return why_not(case.axes, case.shapes)

    def prepare(case, tensors):
        return call(case.axes, tensors)

    def launch(prepared):
        prepared()

    launch.__doc__ = call.__doc__
    ssmbench.kernel(op, name="causal-conv1d", unsupported=unsupported, prepare=prepare)(launch)


for operation in causal_conv1d_calls.OPERATIONS:
    declare(operation)
