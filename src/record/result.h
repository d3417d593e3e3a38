#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "model/arithmetic.h"
#include "model/case.h"
#include "model/implementation.h"
#include "record/cause.h"

namespace ssmbench {

enum class Status {
  pass,     ///< every output within tolerance, each time it was computed
  fail,     ///< an output out of tolerance, or nondeterministic where the implementation claims otherwise
  skip,     ///< the implementation does not support the case
  error,    ///< crash, out of memory, device failure
  invalid,  ///< memory was overwritten that is not the implementation's; or a measurement that cannot be true
  unverified,  ///< --no-verify: ran, and nothing is claimed
};
std::string_view name_of(Status status);
/// Nothing where the word is no status.
std::optional<Status> status_named(std::string_view name);

/// How one output compares with the reference.
struct OutputComparison {
  double max_abs = 0;
  double rel_l2 = 0;           ///< ‖got − expected‖₂ / ‖expected‖₂
  double max_ulp = 0;          ///< in ulps of the output's dtype at the expected value
  double tolerance_ratio = 0;  ///< max over elements of |error| / tolerance; ≤ 1 passes
  Shape worst_index;  ///< logical index of the element that sets tolerance_ratio, or of the first non-finite
  double worst_expected = 0;
  double worst_got = 0;
  /// Elements that are NaN or Inf where the reference is finite, or finite where it is NaN.
  std::int64_t nonfinite = 0;
  /// Elements that the comparison covers: all but those where an honest implementation may overflow on the
  /// way (an unstable method, the pole of a bilinear rule), of which nothing can be asked.
  std::int64_t judged = 0;

  /// Root mean square of the errors in units of what is expected of it; ≤ 1 passes.
  double rms_ratio = 0;
  /// Mean relative error of the decays, in roundoffs, and in units of what it may be (≤ 1 passes); nothing
  /// where the reference does not say what it would do.
  std::optional<double> decay_bias = {};
  double decay_bias_ratio = 0;
  /// Significand bits that the numbers of an f32 output have been rounded to, where those are fewer than the
  /// implementation claims; passes when there are none.
  std::optional<int> significand_bits = {};
  /// Of values that are rounded stochastically: how far they are off in the mean.
  struct RoundingBias {
    double mean = 0;         ///< in units of the distance of neighbours
    double ratio = 0;        ///< of it to what chance explains; ≤ 1 passes
    std::string among = {};  ///< the elements where that is largest: "all", "n 17", "values around 2^-15"
  };
  std::optional<RoundingBias> rounding_bias = {};  ///< the largest; nothing where rounding is to nearest

  /// The parts of the tolerance at worst_index.
  struct Parts {
    double arithmetic = 0;  ///< what rounding on the way may do: factor·(u·bound + v·operand_bound + s)
    double storage = 0;     ///< half an ulp of the output's dtype
    double factor = 0;
    double bound = 0;  ///< of the reference, in roundoffs
    std::optional<double> operand_bound = {};
  } worst_parts = {};
  /// Errors in a stretch of time steps [first, last] of all sequences together.
  struct Span {
    std::int64_t first, last;
    double rms;          ///< of the error
    double worst_ratio;  ///< of error to tolerance
  };
  std::vector<Span> over_time = {};  ///< sixteen at most; empty where the output has no time axis

  /// Set where the config's own tolerance took the place of the derived one, and of the check of
  /// distributions.
  std::optional<UserTolerance> user_tolerance = {};

  bool passed() const {
    return judged > 0 && nonfinite == 0 && tolerance_ratio <= 1 && rms_ratio <= 1 && decay_bias_ratio <= 1 &&
           !significand_bits && !(rounding_bias && rounding_bias->ratio > 1);
  }
};

/// Whether launching again, on another stream too and with other contents of the workspace, gave the same
/// bits.
struct Determinism {
  int reruns = 0;  ///< 0: it would have taken too long
  std::string first_difference =
      {};  ///< "out at (0, 3, 17): 1.25, then 1.5 in rerun 2"; empty when all are equal
};

/// Statistics of repeated runs, milliseconds. Percentiles by linear interpolation between order statistics.
struct TimingStats {
  double median_ms = 0, mean_ms = 0, stdev_ms = 0, min_ms = 0, max_ms = 0;
  double p5_ms = 0, p95_ms = 0, p99_ms = 0;
  std::vector<double> samples_ms;
  int outliers = 0;             ///< of the samples, those far from the others; they are kept
  int throttled = 0;            ///< samples thrown away because the device held its clock down
  int queue_ran_dry = 0;        ///< of the samples, those that may hold time of the host (LaunchTime)
  std::string stopped_by = {};  ///< "precision", "plateau", "runs" or "time"
  std::optional<double> clock_mhz = {};  ///< of the device while the samples were taken, median
};

/// What it takes to bring a case's inputs to the device and its outputs back, milliseconds, medians.
struct TransferTimes {
  struct Times {
    double h2d_ms = 0, d2h_ms = 0;
    double end_to_end_ms = 0;  ///< inputs in, launch, outputs out
  };
  Times pinned, pageable;  ///< by the kind of host memory
};

/// The least time that the device's measured ceilings allow.
struct Roofline {
  double floor_ms = 0;
  std::string bound = {};  ///< what binds: "dram", "l2", "mufu", "fma", "tensor"
  double fraction = 0;     ///< floor over measured time
};

/// What is known of a team beside its time, which is that of the rank that takes longest.
struct TeamUse {
  std::vector<double> rank_ms = {};  ///< by rank, the median of its own times; empty where nothing was timed
  double wire_bytes = 0;             ///< that a launch sends: the most of any rank
  /// Steps that the rank with most of them computed a second time, where that depends on the data.
  std::optional<std::int64_t> rerun_steps = {};
  std::optional<TimingStats> exchange = {};  ///< what a launch sends and receives, alone, where timed
};

/// A team against one device: the fastest that passed on the case in the same run.
struct Scaling {
  std::string impl;
  double ms_one = 0;      ///< its median
  double speedup = 0;     ///< of the team over it
  double efficiency = 0;  ///< speedup over ranks
};

/// What came of one implementation on one case.
struct CaseResult {
  Case the_case;
  std::string impl;
  std::string device;  ///< "cpu", "cuda:0", "cpu*2" for a team
  /// The arithmetic that the implementation claims, from which tolerances follow; nothing in files of before
  /// it was kept.
  std::optional<Arithmetic> claims = {};
  Status status = Status::error;
  std::optional<Cause> cause = {};  ///< of a fail, invalid, error or skip
  std::string reason = {};          ///< the same in words
  std::map<std::string, OutputComparison> outputs = {};
  std::optional<Determinism> determinism = {};  ///< none where nothing was verified or it failed before
  /// "hot", "cold" where the cache can be flushed, "graph" where launches can be replayed.
  std::map<std::string, TimingStats> timing = {};
  std::optional<TransferTimes> transfers = {};  ///< where device and host memory are apart
  std::optional<Roofline> roofline = {};        ///< where the device is calibrated
  std::optional<TeamUse> team = {};             ///< of a device of several ranks
  std::optional<Scaling> scaling = {};          ///< of a team that passed, where one device did too
  Work work = {};
  std::size_t workspace_bytes = 0;
  /// Of a run with several slots: which it ran in ("cuda:1", "cpu:0", "cuda:1@node2"), and how many others
  /// of its host were at work then; 0 for what has the host for itself. Of other runs empty, and nothing.
  std::string slot = {};
  std::optional<int> beside = {};
  std::string repro = {};  ///< the one command that runs exactly this again
  /// Hash of all that the result depends on: equal keys, equal work (sweep/job_keys.h).
  std::string key = {};

  /// What it claims that is less exact than the case's dtype: "tf32", "bf16 states"; empty where nothing is.
  std::string lowered_arithmetic() const;
  /// Whether an output was judged by the config's own tolerance.
  bool judged_by_user() const;
  /// The timing that tables and budgets use: hot.
  const TimingStats* headline() const;
};

/// What a run is and where it happens: the first record of a results file.
struct RunInfo {
  std::vector<std::string> argv;
  std::map<std::string, std::string> build;  ///< version, git revision, compiler, CUDA
  std::map<std::string, std::map<std::string, std::string>>
      devices;                          ///< "cpu", "cuda:0": name, memory, clocks, …
  std::string started;                  ///< ISO 8601, UTC
  std::vector<std::string> slots = {};  ///< of several workers at a time (CaseResult::slot); else empty
};

/// How a run ended: the last record.
struct Summary {
  std::map<Status, int> counts;
  int kept = 0;            ///< of them, taken over from an earlier run (--resume)
  int passed_by_user = 0;  ///< of those that passed, judged by tolerances of the config
  bool interrupted = false;
  double seconds = 0;
  /// Of them, making inputs and references; those of several slots are added up.
  double input_seconds = 0, reference_seconds = 0;
};

}  // namespace ssmbench
