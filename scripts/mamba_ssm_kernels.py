"""The installed mamba_ssm as a plugin: `ssmbench run CONFIG --plugin scripts/mamba_ssm_kernels.py`.

Both sides of a comparison then run in one process, in turns, by one timer:

    ssmbench run configs/comparison.json --device cuda --plugin scripts/mamba_ssm_kernels.py

What mamba_ssm returns is copied to ssmbench's memory, and the copy is in its time; SSMBENCH_COPY_TIMES=FILE has it
measured alone (copy_times.py), and one_run_table.py subtracts it. Decoding steps write there
(given_outputs.py), all but small states of Mamba-3. Each launch of a backward pass has a forward pass of its own,
since inputs change between launches; export_mamba_ssm.py times it alone.
"""

import copy_times
import mamba3_calls
import mamba_ssm  # noqa: F401 # says so if it is missing
import mamba_ssm_calls
import ssmbench

IO_DTYPES = ("f32", "f16", "bf16")
SCAN = ("u", "delta", "A", "B", "C", "D", "z", "delta_bias")
SSD = ("x", "dt", "A", "B", "C", "D", "z", "dt_bias", "initial_states")
MAMBA3 = ("out", *("Final_" + state for state in mamba3_calls.STATES))
RETURNS = {
    "selective_scan_fwd": ("out", "last_state"),
    "selective_scan_bwd": tuple("d" + name for name in SCAN),
    "ssd_chunk_scan_fwd": ("out", "final_states"),
    "ssd_chunk_scan_bwd": tuple("d" + name for name in SSD),
    "selective_state_update": ("out",),  # the state is updated in place
    "mamba3_siso_fwd": MAMBA3,
    "mamba3_siso_bwd": tuple("d" + name for name in mamba3_calls.OF_SISO),
    "mamba3_mimo_fwd": MAMBA3,
    "mamba3_mimo_bwd": tuple("d" + name for name in mamba3_calls.OF_MIMO),
    "mamba3_step": ("out", *mamba3_calls.STATES),
}
# Written where they are wanted (given_outputs.py).
IN_PLACE = {"selective_state_update": ("out",), "mamba3_step": ("out", "SSM_State")}


def declare(op):
    why_not, call = mamba_ssm_calls.OPERATIONS[op]

    def unsupported(case):
        axes = {**case.axes, "dtype": case.dtype}
        reason = why_not(axes, case.shapes, axes.get("A") == "complex")
        if reason is None and op == "selective_scan_fwd" and axes["B"] == "constant":
            return "mamba_ssm leaves a constant B out of last_state"
        if reason is None and axes.get("store", "last") != "last":
            return "selective_state_update stores states where they come from"
        return reason

    def prepare(case, tensors):
        copied = [name for name in RETURNS[op] if name in tensors and name not in IN_PLACE.get(op, ())]
        copy_times.note(case, [tensors[name] for name in copied])
        return call(case.axes, tensors, fresh=True)

    def launch(prepared):
        return prepared()

    launch.__doc__ = call.__doc__ if "bwd" not in op else call.__doc__ + " The time has a forward pass in it."
    ssmbench.kernel(
        op,
        name="mamba-ssm",
        math={io: mamba_ssm_calls.math_of(op, io) for io in IO_DTYPES},
        state_dtype={io: mamba_ssm_calls.state_dtype_of(op, io) or "f32" for io in IO_DTYPES},
        unsupported=unsupported,
        prepare=prepare,
        returns=RETURNS[op],
    )(launch)


for operation in RETURNS:
    declare(operation)
