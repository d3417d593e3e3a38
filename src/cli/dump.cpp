#include <fmt/format.h>
#include <fmt/ranges.h>

#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include "base/progress.h"
#include "cli/exit_code.h"
#include "cli/interrupt.h"
#include "cli/list_cases.h"
#include "cli/run_info.h"
#include "cli/run_options.h"
#include "cli/subcommands.h"
#include "config/config.h"
#include "inputs/inputs.h"
#include "interchange/writer.h"
#include "model/build_info.h"
#include "reference/reference.h"
#include "sweep/plan.h"

namespace ssmbench {
namespace {

struct DumpOptions {
  std::vector<std::filesystem::path> configs;
  std::string file;
  Selection selection;
  std::vector<std::string> set;
  bool quick = false, no_compress = false, no_reference = false, quiet = false;
  std::vector<std::string> argv;
};

/// Inputs of every case and, unless it is not wanted, their fp64 reference; outputs are left for others to
/// fill in.
int dump(const DumpOptions& options) {
  std::vector<Override> overrides;
  for (const auto& text : options.set) overrides.push_back(parse_override(text));
  // Which implementations there are does not matter, only which cases are selected.
  const Plan plan = make_plan(load_configs(options.configs, overrides, options.quick), possible_devices(),
                              options.selection);
  if (plan.cases.empty()) {
    fmt::print(stderr, "ssmbench: no case matches the selection\n");
    return kNothingMatched;
  }
  const std::size_t host = list_devices().front().free_bytes;
  for (const auto& planned : plan.cases) {
    MemoryNeed need{.host = options.no_reference ? 0 : reference_bytes(planned.the_case.problem)};
    for (const auto& tensor : planned.the_case.problem.tensors()) need.host += tensor.bytes();
    check_memory(planned.the_case, need, host, {});
  }

  InterruptGuard interrupt;
  Progress progress(options.quiet, false);
  progress.total(plan.cases.size());
  InterchangeWriter writer(options.file,
                           {.producer = fmt::format("ssmbench {} dump", build_info().version),
                            .device = "",
                            .created = iso_now(),
                            .argv = fmt::format("{}", fmt::join(options.argv, " "))},
                           !options.no_compress);
  for (std::size_t done = 0; done < plan.cases.size(); ++done) {
    const Case& the_case = plan.cases[done].the_case;
    progress.update(done, the_case.id());
    const auto inputs = generate_inputs(the_case.problem, the_case.inputs, interrupt.flag());
    ReferenceOutputs reference;
    if (!options.no_reference)
      reference = compute_reference(the_case.problem, views_of(inputs), interrupt.flag());
    CaseToWrite entry{.id = the_case.id(),
                      .problem = the_case.problem,
                      .seed = the_case.inputs.seed,
                      .inputs = views_of(inputs),
                      .outputs = {},
                      .reference = {}};
    for (const auto& [name, output] : reference) entry.reference[name] = output.expected;
    writer.add_case(entry);
  }
  writer.finish();
  progress.say(fmt::format("{} cases: {}", plan.cases.size(), options.file));
  return kOk;
}

}  // namespace

void add_dump(Program& program, const std::vector<std::string>& arguments) {
  Command& command =
      program.add("dump", "Write inputs and fp64 reference outputs for another implementation to fill in.",
                  "ssmbench dump configs/small.json -o small.h5");
  auto options = std::make_shared<DumpOptions>();
  command.positionals("CONFIG", options->configs, "Config files");
  command.required_option("-o,--output", "FILE", options->file, "Interchange file (HDF5) to write");
  add_selection(command, options->selection);
  command.repeated_option("--set", "AXIS=VALUES", options->set, kSetHelp);
  command.flag("--quick", options->quick, "Use batch 1 and the shortest seqlen of each sweep");
  command.flag("--no-compress", options->no_compress, "Store tensors uncompressed");
  command.flag("--no-reference", options->no_reference, "Write inputs only; check computes the reference");
  command.flag("--quiet", options->quiet, "Print no progress");
  options->argv = {"ssmbench"};
  options->argv.insert(options->argv.end(), arguments.begin(), arguments.end());
  command.runs([options] { return dump(*options); });
}

}  // namespace ssmbench
