// What kernels of servers have got wrong without a word, each as a kernel of tests/mutants that writes its outputs
// to a file: check fails it and says where.

#include <string>
#include <vector>

#include "catch.h"
#include "support/run_command.h"
#include "support/temporary_folder.h"

using namespace ssmbench;
using namespace ssmbench::test;

namespace {

struct Trap {
  const char* mutant;
  const char* sweep;
  const char* cases;
  std::vector<const char*> said;
};

const std::vector<Trap> kTraps{
    // A prefix of a packed batch: what follows in it starts from the wrong state.
    {"state-crosses-border",
     "ssd",
     "*varlen*m5-at4*",
     {"fail   out ", "from the start of sequence 1 on: does each have a state of its own?", "only m 1 to 4"}},
    {"decay-from-chunk", "ssd", "*varlen*m5-at4*", {"fail   out ", "fail   final_states "}},
    {"empty-takes-last", "ssd", "*with-empty*", {"fail   final_states ", "only m 1, without steps"}},
    {"empty-is-zero", "ssd", "*with-empty*", {"fail   final_states ", "only m 1, without steps"}},
    {"stop-at-chunk-end", "ssd", "*varlen*m5-at4*", {"fail   states "}},
    {"state-crosses-border",
     "selective_scan_fwd",
     "*varlen*m5-mamba*",
     {"fail   out ", "from the start of sequence 1 on: does each have a state of its own?"}},
    {"empty-is-zero",
     "selective_scan_fwd",
     "*with-empty*",
     {"fail   last_state ", "only m 1, without steps"}},
    // Slots: of another sequence, of nobody.
    {"padding-stored",
     "steps",
     "*slots13-storeapart*",
     {"fail   state ", "only s 12, which destination does not name"}},
    {"source-for-destination", "steps", "*f32-b4*slots13-storeapart*", {"fail   state ", " of 13 s"}},
    {"first-destination-only", "steps", "*f32-b4*slots13-storeeach*", {"fail   state "}},
    {"state-rounded-between-tokens", "steps", "*statebf16*slots13-pads3-*", {"fail   "}},
    {"padding-has-scale", "steps", "*statei8*slots9-pads3-*", {"fail   state_scale ", "only s 0"}},
    {"subnormals-flushed", "steps", "*statef16*", {"fail   state ", "got 0"}},
    {"pads-written", "conv", "*apart*", {"fail   conv_state ", "only s 0, which destination does not name"}},
    // The convolution at borders, and shorter than its filter.
    {"taps-cross-borders", "conv", "*l2-packed*", {"fail   out "}},
    {"dfinal-cut-at-start", "conv", "*bwd*l2-*", {"fail   dinitial_states "}},
};

}  // namespace

TEST_CASE("what kernels of servers have got wrong is found in a file, and located") {
  const TemporaryFolder folder;
  int number = 0;
  for (const auto& trap : kTraps) {
    CAPTURE(trap.mutant, trap.sweep, trap.cases);
    const std::string file = folder / (std::to_string(number++) + ".h5");
    run_ssmbench("run tests/mutants/" + std::string(trap.sweep) + ".json --impl mutant-" + trap.mutant +
                 " --case '" + trap.cases +
                 "' --plugin " SSMBENCH_MUTANTS " --device cpu --no-timing --no-supervision --quiet " +
                 "--json /dev/null --dump " + file);
    const CommandResult checked = run_ssmbench("check " + file);
    INFO(checked.out << checked.err);
    CHECK(checked.exit_code == 1);
    CHECK(checked.err == "");
    for (const char* words : trap.said) {
      CAPTURE(words);
      CHECK(checked.out.find(words) != std::string::npos);
    }
  }
}
