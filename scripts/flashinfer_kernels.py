"""The installed FlashInfer as a plugin: `ssmbench run CONFIG --plugin scripts/flashinfer_kernels.py`.

Both sides of a comparison then run in one process, in turns, by one timer:

    ssmbench run configs/decode-models.json --device cuda --plugin scripts/flashinfer_kernels.py

It writes to ssmbench's memory. A dt that is not f32 is converted first, and that is in its time; cases with
`"dt_dtype": "f32"` do without.
"""

import flashinfer  # noqa: F401 # says so if it is missing
import flashinfer_calls
import ssmbench


def declare(op):
    why_not, call = flashinfer_calls.OPERATIONS[op]

    def unsupported(case):
        if case.axes["intermediate"]:
            return "intermediate states are of export_flashinfer.py alone"
        return why_not(case.axes, case.shapes, {"state": case.axes["state_dtype"]}, case.axes["store"])

    def prepare(case, tensors):
        store = case.axes["store"]
        if case.axes["tokens"] == 1 and store == "each":  # the slot that it comes from
            store = "last"
        return call(case.axes, tensors, fresh=True, store=store)

    def launch(prepared):
        prepared()

    launch.__doc__ = call.__doc__
    ssmbench.kernel(
        op,
        name="flashinfer",
        math={io: "f32" for io in ("f32", "f16", "bf16")},
        unsupported=unsupported,
        prepare=prepare,
    )(launch)


for operation in flashinfer_calls.OPERATIONS:
    declare(operation)
