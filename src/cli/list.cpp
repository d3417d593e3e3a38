#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <cstdio>
#include <filesystem>
#include <functional>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <set>
#include <utility>
#include <vector>

#include "base/errors.h"
#include "base/json_text.h"
#include "base/printable.h"
#include "cli/calibrate.h"
#include "cli/execute_plan.h"
#include "cli/exit_code.h"
#include "cli/list_cases.h"
#include "cli/run_options.h"
#include "cli/subcommands.h"
#include "config/config.h"
#include "device/device.h"
#include "model/distributed.h"
#include "model/implementation.h"
#include "model/method.h"
#include "plugin/plugin.h"
#include "team/team_device.h"

namespace ssmbench {
namespace {

using OrderedJson = nlohmann::ordered_json;

struct ListOptions {
  std::string what;
  std::vector<std::filesystem::path> configs;
  std::vector<std::string> plugins;
  bool json = false;
  bool calibrate = false;
  std::optional<int> gpus, cpus;  ///< ranks whose links are measured
  bool rehearse = false;          ///< not for users: only asks plugins, to see whether they survive that
  std::vector<std::string> argv;
};

OrderedJson ops() {
  OrderedJson all = OrderedJson::array();
  for (const OpSpec* op : all_ops()) {
    OrderedJson axes = OrderedJson::array();
    for (const auto& axis : op->axes) axes.push_back(axis.name);
    all.push_back({{"name", op->name}, {"summary", op->summary}, {"axes", axes}});
  }
  return all;
}

OrderedJson method_entries() {
  OrderedJson all = OrderedJson::array();
  for (const auto& method : methods())
    all.push_back(
        {{"name", method.name},
         {"summary", fmt::format("{}: A\u0304 = {}, c = {}", method.summary, method.decay, method.input)},
         {"decay", method.decay},
         {"input", method.input}});
  return all;
}

/// "f32", or where it depends on the io dtype {"f32": "tf32", "f16": "f16", "bf16": "bf16"}.
OrderedJson math_of(const Implementation& implementation) {
  OrderedJson by_dtype = OrderedJson::object();
  std::set<std::string_view> different;
  for (const DType io : {DType::f32, DType::f16, DType::bf16}) {
    const std::string_view math = name_of(implementation.arithmetic(io).math);
    by_dtype[std::string(name_of(io))] = math;
    different.insert(math);
  }
  return different.size() == 1 ? OrderedJson(*different.begin()) : by_dtype;
}

OrderedJson entry(const Implementation& i, std::string_view device) {
  return {{"name", i.name},
          {"summary", i.summary},
          {"op", i.op},
          {"device", device},
          {"math", math_of(i)},
          {"deterministic", i.deterministic},
          {"known_failure", i.known_failure}};
}

OrderedJson impls() {
  OrderedJson all = OrderedJson::array();
  for (const auto& i : implementations()) all.push_back(entry(i, name_of(i.device)));
  // Those of teams, which are the same for any number of ranks.
  for (const auto& i : team_implementations(2))
    all.push_back(entry(i, fmt::format("{}*", name_of(i.device))));
  return all;
}

OrderedJson devices(const CeilingsByKey& measured) {
  OrderedJson all = OrderedJson::array();
  for (const auto& device : list_devices()) {
    all.push_back({{"name", device_id(device)},
                   {"summary", fmt::format("{}, {:.1f} GiB", device.name,
                                           static_cast<double>(device.total_bytes) / (1 << 30))},
                   {"details", device.details}});
    if (const auto known = measured.find(ceilings_key(device)); known != measured.end())
      for (const auto& field : kCeilingFields)
        all.back()["ceilings"][field.name] = known->second.*field.member;
  }
  return all;
}

/// The team of so many ranks on the CPU, or on GPUs.
OrderedJson links(DeviceKind kind, int ranks) {
  const auto all = list_devices();
  const auto first = std::ranges::find(all, kind, &DeviceInfo::kind);
  if (first == all.end()) throw DeviceError("there is no CUDA device: " + no_cuda_reason());
  const DeviceInfo team = team_info(*first, ranks);
  fmt::print(stderr, "measuring the links of {}\n", device_id(team));
  const LinkCeilings found = measure_links_of(team);
  return {{"name", device_id(team)},
          {"summary", fmt::format("{} ranks, each {}", ranks, team.name)},
          {"details", team.details},
          {"links",
           {{"latency_ms", found.latency_ms},
            {"all_gather_bytes_per_s", found.gather_bytes},
            {"all_to_all_bytes_per_s", found.all_to_all_bytes}}}};
}

void print_links(const OrderedJson& links, std::size_t indent) {
  fmt::print("{:{}}{:<14}{:>9.1f} \u00b5s\n", "", indent, "latency", 1e3 * links["latency_ms"].get<double>());
  for (const auto& [label, field] :
       {std::pair("all-gather", "all_gather_bytes_per_s"), {"all-to-all", "all_to_all_bytes_per_s"}})
    fmt::print("{:{}}{:<14}{:>9.1f} GB/s\n", "", indent, label, links[field].get<double>() / 1e9);
}

/// Those that are known, a line each.
void print_ceilings(const OrderedJson& ceilings, std::size_t indent) {
  struct Row {
    const char *field, *label, *unit;
    double unit_size;
  };
  constexpr std::array<Row, 8> kRows{{{"dram_bytes_per_s", "DRAM", "GB/s", 1e9},
                                      {"cache_bytes_per_s", "L2", "GB/s", 1e9},
                                      {"cache_size_bytes", "caches", "MB", 1e6},
                                      {"exponentials_per_s", "exponentials", "G/s", 1e9},
                                      {"fmas_per_s", "multiply-adds", "G/s", 1e9},
                                      {"tf32_flops_per_s", "tensor tf32", "TFLOP/s", 1e12},
                                      {"f16_flops_per_s", "tensor f16", "TFLOP/s", 1e12},
                                      {"bf16_flops_per_s", "tensor bf16", "TFLOP/s", 1e12}}};
  for (const auto& row : kRows)
    if (const double value = ceilings[row.field].get<double>(); value > 0)
      fmt::print("{:{}}{:<14}{:>9.1f} {}\n", "", indent, row.label, value / row.unit_size, row.unit);
}

/// Name and summary, aligned; JSON carries the rest.
void print(const OrderedJson& entries, bool json) {
  if (json) {
    fmt::print("{}\n", json_text(entries, 2));
    return;
  }
  std::size_t width = 18;
  for (const auto& entry : entries) width = std::max(width, entry["name"].get<std::string>().size());
  for (const auto& entry : entries) {
    const std::string kind = entry.contains("op") ? fmt::format("{}  ", entry["op"].get<std::string>()) : "";
    fmt::print("{:<{}}{}{}\n", entry["name"].get<std::string>(), width + 2, kind,
               printable(entry["summary"].get<std::string>()));
    if (entry.contains("ceilings")) print_ceilings(entry["ceilings"], width + 2);
    if (entry.contains("links")) print_links(entry["links"], width + 2);
  }
}

/// With --calibrate what is measured is printed before it is written, which may fail.
void print_devices(const ListOptions& options) {
  const std::filesystem::path file = ceilings_file();
  std::string warning;
  CeilingsByKey ceilings = read_ceilings(file, warning);
  if (!warning.empty()) fmt::print(stderr, "warning: {}\n", warning);
  if (options.calibrate) measure_devices(ceilings);
  OrderedJson all = devices(ceilings);
  if (options.cpus) all.push_back(links(DeviceKind::cpu, *options.cpus));
  if (options.gpus) all.push_back(links(DeviceKind::cuda, *options.gpus));
  print(all, options.json);
  if (!options.calibrate) return;
  std::fflush(stdout);
  write_ceilings(file, ceilings);
}

/// Sweep by sweep: a config may have a million cases.
void visit_plans(const std::vector<std::filesystem::path>& configs,
                 const std::function<void(const Plan&)>& visit) {
  visit_configs(configs,
                [&](std::vector<Case> cases) { visit(make_plan(std::move(cases), possible_devices(), {})); });
}

void print_cases_of(const ListOptions& options) {
  if (!options.json) {
    visit_plans(options.configs, print_cases);
    return;
  }
  print_cases_as_json([&](const auto& visit) { visit_plans(options.configs, visit); });
}

int rehearse(const ListOptions& options) {
  return finish_rehearsal([&] {
    register_plugins(options.plugins);
    visit_plans(options.configs, [](const Plan& /*plan*/) {});
  });
}

int list(const ListOptions& options) {
  if (options.rehearse) return rehearse(options);
  if (!options.plugins.empty()) rehearse_plugins(options.argv, options.plugins, kDefaultTimeoutSeconds);
  register_plugins(options.plugins);
  if (options.calibrate && options.what != "devices")
    throw UsageError(fmt::format("list {}: --calibrate is for devices", options.what));
  if ((options.cpus || options.gpus) && !options.calibrate)
    throw UsageError("list: --cpus and --gpus are for --calibrate");
  if (options.what == "cases") {
    if (options.configs.empty()) throw UsageError("list cases: name at least one config");
    print_cases_of(options);
    return kOk;
  }
  if (!options.configs.empty()) throw UsageError(fmt::format("list {}: takes no config", options.what));
  if (options.what == "ops") print(ops(), options.json);
  if (options.what == "methods") print(method_entries(), options.json);
  if (options.what == "impls") print(impls(), options.json);
  if (options.what == "devices") print_devices(options);
  return kOk;
}

}  // namespace

void add_list(Program& program, const std::vector<std::string>& arguments) {
  Command& command = program.add(
      "list", "List operations, discretization methods, implementations, devices, or the cases of configs.",
      "ssmbench list cases configs/small.json");
  auto options = std::make_shared<ListOptions>();
  command.positional_choice("WHAT", options->what, "What to list",
                            {"ops", "methods", "impls", "devices", "cases"});
  command.optional_positionals("CONFIG", options->configs, "Config files, for cases");
  command.repeated_option("--plugin", "LIBRARY", options->plugins, kPluginHelp);
  command.flag("--json", options->json, "Print JSON");
  command.flag("--calibrate", options->calibrate,
               "With devices: measure peak rates again and cache them for later runs");
  command.positive("--gpus", "N", options->gpus, "With --calibrate: also measure the links between N GPUs");
  command.positive("--cpus", "N", options->cpus,
                   "With --calibrate: also measure the links between N CPU processes");
  command.hidden_flag("--rehearse", options->rehearse);
  options->argv = {"ssmbench"};
  options->argv.insert(options->argv.end(), arguments.begin(), arguments.end());
  command.runs([options] { return list(*options); });
}

}  // namespace ssmbench
