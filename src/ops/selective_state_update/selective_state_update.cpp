#include "ops/selective_state_update/selective_state_update.h"

#include <fmt/format.h>

#include <algorithm>
#include <iterator>
#include <numeric>

#include "model/problem.h"
#include "ops/selective_state_update/file_form.h"
#include "ops/selective_state_update/inputs.h"
#include "ops/selective_state_update/parts.h"

namespace ssmbench {
namespace {

constexpr const char* kMamba1 = "mamba1";
constexpr const char* kMamba2 = "mamba2";
constexpr const char* kIoDType = "io";  // dt_dtype: that of the sequence

constexpr const char* kRoundings[]{"nearest", "stochastic"};
constexpr const char* kStores[]{"last", "apart", "each", "none"};  // in the order of StateStore

/// Makes tensors in C order from one letter per axis.
class Tensors {
 public:
  explicit Tensors(const StateUpdate& update) : update_(update) {}

  std::vector<TensorSpec> all;

  void add(const char* name, Role role, DType dtype, const std::string& axes) {
    Shape shape;
    for (const char letter : axes) shape.push_back(extent(letter));
    std::vector<int> order(shape.size());
    std::iota(order.begin(), order.end(), 0);
    all.push_back({name, role, dtype, std::move(shape), std::move(order), axes});
  }
  void input(const char* name, DType dtype, const std::string& axes) { add(name, Role::input, dtype, axes); }

 private:
  std::int64_t extent(char letter) const {
    switch (letter) {
      case 'b':
        return update_.batch;
      case 's':
        return update_.slots;
      case kTimeLetter:
        return update_.tokens;
      case 'g':
        return update_.groups;
      case 'p':
        return update_.headdim;
      case 'n':
        return update_.dstate;
      case 'o':
        return 1;
      default:  // h, d
        return update_.heads;
    }
  }

  const StateUpdate& update_;
};

std::vector<TensorSpec> state_update_tensors(const Problem& problem) {
  const StateUpdate update(problem);
  const DType io = problem.dtype();
  const bool mamba1 = update.rate_per_state;
  const std::string head = mamba1 ? "d" : "h";
  const std::string row = mamba1 ? "d" : "hp";
  const std::string token = update.tokens > 1 ? "bl" : "b";
  const std::string state = (update.slots > 0 ? "s" : "b") + row + "n";
  const std::string projection = token + (mamba1 && update.groups == 1 ? "n" : "gn");

  Tensors tensors(update);
  const std::string scale = (update.slots > 0 ? "s" : "b") + row;
  tensors.input("state", update.state_dtype, state);
  if (update.has_scale()) tensors.input("state_scale", DType::f32, scale);
  tensors.input("x", io, token + row);
  tensors.input("dt", update.dt_dtype, token + head);
  tensors.input("A", DType::f32, mamba1 ? "dn" : "h");
  tensors.input("B", io, projection);
  tensors.input("C", io, projection);
  if (update.has_D) tensors.input("D", DType::f32, head);
  if (update.has_z) tensors.input("z", io, token + row);
  if (update.has_dt_bias) tensors.input("dt_bias", DType::f32, head);
  if (update.slots > 0) {
    tensors.input("source", DType::i32, "b");
    tensors.input("destination", DType::i32, "bl");
  }
  if (update.stochastic) tensors.input("seed", DType::i64, "o");
  tensors.add("out", Role::output, io, token + row);
  tensors.add("state", Role::output, update.state_dtype, state);
  if (update.has_scale()) tensors.add("state_scale", Role::output, DType::f32, scale);
  if (update.has_intermediate)
    tensors.add("intermediate", Role::output, update.state_dtype, "bl" + row + "n");
  if (update.has_scale())
    for (auto& tensor : tensors.all)
      if (tensor.name == "state") tensor.scaled_by = "state_scale";
  return tensors.all;
}

/// Slots that inputs of the problem take. Padding counts like other rows: a file does not say which are.
std::int64_t slots_taken(const StateUpdate& update) {
  if (update.store == StateStore::apart) return 2 * update.batch;
  if (update.store == StateStore::each) return update.tokens * update.batch;
  return update.batch;
}

std::optional<std::string> state_update_contradiction(const Problem& problem) {
  const StateUpdate update(problem);
  if (update.dstate > kMaxStepDState)
    return fmt::format("dstate {} is over the limit of {}", update.dstate, kMaxStepDState);
  if (update.headdim > kMaxHeadDim)
    return fmt::format("headdim {} is over the limit of {}", update.headdim, kMaxHeadDim);
  if (update.heads % update.groups != 0)
    return fmt::format("{} {} is not a multiple of groups {}", update.rate_per_state ? "dim" : "nheads",
                       update.heads, update.groups);
  const std::string& store = problem.choice("store");
  if (update.slots == 0 && update.store != StateStore::last)
    return fmt::format("store {} without slots", store);
  if (update.slots == 0 && update.pads > 0) return fmt::format("pads {} without slots", update.pads);
  if (update.has_intermediate && update.tokens == 1) return "intermediate with one token, which is the last";
  if (update.has_intermediate && update.has_scale())
    return fmt::format("intermediate with states in {}, which have scales in the cache only",
                       name_of(update.state_dtype));
  if (update.stochastic && !update.has_scale() && update.state_dtype != DType::f16)
    return fmt::format("rounding stochastic of states in {}; it is for f16, i8, i16 and e4m3",
                       name_of(update.state_dtype));
  if (update.pads == 1) return "pads 1 leaves no row that is not padding";
  if (update.slots > 0 && update.slots < slots_taken(update))
    return fmt::format("slots {} are fewer than the {} that batch {}, tokens {} and store {} take",
                       update.slots, slots_taken(update), update.batch, update.tokens, store);
  return {};
}

/// Slots that h is stored into.
std::int64_t slots_written(const StateUpdate& update) {
  const std::int64_t rows = update.batch - update.padding_rows();
  if (update.store == StateStore::none) return 0;
  return update.store == StateStore::each ? update.tokens * rows : rows;
}

/// Slots are read and written once where they are named, with their scales. One exponential a state and token
/// in form mamba1, one a head in form mamba2; decay, input and output are a multiply-add each.
Work state_update_work(const Problem& problem, Math /*math*/) {
  const StateUpdate update(problem);
  const std::int64_t rows = update.batch - update.padding_rows();
  double bytes = 0;
  for (const auto& tensor : problem.tensors())
    if (tensor.name != "state" && tensor.name != "state_scale") bytes += static_cast<double>(tensor.bytes());
  const double row_bytes =
      static_cast<double>(update.dstate) * static_cast<double>(size_of(update.state_dtype)) +
      (update.has_scale() ? static_cast<double>(sizeof(float)) : 0);
  const double sequence_bytes = static_cast<double>(update.heads * update.headdim) * row_bytes;
  bytes += static_cast<double>(rows + slots_written(update)) * sequence_bytes;
  const double tokens = static_cast<double>(rows) * static_cast<double>(update.tokens);
  const double states = tokens * static_cast<double>(update.states_of_sequence());
  return {.bytes = bytes,
          .exponentials = update.rate_per_state ? states : tokens * static_cast<double>(update.heads),
          .fmas = 3 * states};
}

InputFill state_update_inputs(const Problem& problem, const InputSpec& spec) {
  return fill_from(StateUpdateInputs(problem, spec));
}

AxisSpec flag(const char* name, const char* id_token, bool fallback = true) {
  return {.name = name, .kind = AxisKind::flag, .id_token = id_token, .fallback = fallback};
}

AxisSpec count(const char* name, const char* id_token, std::int64_t fallback) {
  return {.name = name, .id_token = id_token, .fallback = fallback};
}

std::vector<AxisSpec> state_update_axes() {
  const std::vector<std::string> dtypes{"f32", "f16", "bf16"};
  return {{.name = "form", .kind = AxisKind::choice, .choices = {kMamba1, kMamba2}},
          {.name = "method",
           .kind = AxisKind::choice,
           .choices = {"zoh"},
           .fallback = "zoh",
           .role = AxisRole::method},
          {.name = "dtype", .kind = AxisKind::choice, .choices = dtypes, .role = AxisRole::dtype},
          {.name = "state_dtype",
           .kind = AxisKind::choice,
           .id_token = "state",
           .choices = {"f32", "f16", "bf16", "i8", "i16", "e4m3"},
           .fallback = "f32"},
          {.name = "layout",
           .kind = AxisKind::choice,
           .choices = {"bd"},
           .fallback = "bd",
           .role = AxisRole::layout,
           .changes_values = false},
          {.name = "batch", .id_token = "b", .role = AxisRole::batch},
          {.name = "dim",
           .id_token = "d",
           .only_with = {{"form", kMamba1}},
           .role = AxisRole::channel,
           .letter = 'd'},
          {.name = "nheads",
           .id_token = "h",
           .only_with = {{"form", kMamba2}},
           .role = AxisRole::channel,
           .letter = 'h'},
          {.name = "headdim", .id_token = "p", .only_with = {{"form", kMamba2}}},
          {.name = "dstate", .id_token = "n"},
          {.name = "groups", .id_token = "g", .fallback = std::int64_t{1}, .role = AxisRole::groups},
          flag("D", "D"),
          flag("z", "z"),
          flag("dt_bias", "bias"),
          flag("dt_softplus", "softplus"),
          {.name = "dt_dtype",
           .kind = AxisKind::choice,
           .id_token = "dt",
           .choices = {kIoDType, "f32"},
           .fallback = kIoDType},
          count("tokens", "t", 1),
          count("slots", "slots", 0),
          {.name = "store",
           .kind = AxisKind::choice,
           .id_token = "store",
           .choices = {std::begin(kStores), std::end(kStores)},
           .fallback = kStores[0]},
          count("pads", "pads", 0),
          flag("intermediate", "intermediate", false),
          {.name = "rounding",
           .kind = AxisKind::choice,
           .id_token = "rounding",
           .choices = {std::begin(kRoundings), std::end(kRoundings)},
           .fallback = kRoundings[0]}};
}

const OpRegistration registration(selective_state_update());

}  // namespace

const OpSpec& selective_state_update() {
  static const OpSpec spec{
      .name = "selective_state_update",
      .summary = "decoding steps of Mamba-1 or Mamba-2, the states updated in place",
      .axes = state_update_axes(),
      .tensors = state_update_tensors,
      .contradiction = state_update_contradiction,
      .inputs = state_update_inputs,
      .least_work = state_update_work,
      .file = state_update_file_form(),
      .parts = {heads_as_channels(), tokens_as_steps(), other_seed(), slots_that_nobody_names()},
      .look_alikes = {{"B", "C"}}};
  return spec;
}

StateUpdate::StateUpdate(const Problem& problem)
    : rate_per_state(problem.choice("form") == kMamba1),
      batch(problem.size("batch")),
      heads(problem.size(rate_per_state ? "dim" : "nheads")),
      headdim(rate_per_state ? 1 : problem.size("headdim")),
      dstate(problem.size("dstate")),
      groups(problem.size("groups")),
      has_z(problem.flag("z")),
      has_D(problem.flag("D")),
      has_dt_bias(problem.flag("dt_bias")),
      dt_softplus(problem.flag("dt_softplus")),
      state_dtype(*parse_dtype(problem.choice("state_dtype"))),
      dt_dtype(problem.choice("dt_dtype") == kIoDType ? problem.dtype() : DType::f32),
      tokens(problem.size("tokens")),
      slots(problem.size("slots")),
      pads(problem.size("pads")),
      store(static_cast<StateStore>(std::ranges::find(kStores, problem.choice("store")) - kStores)),
      has_intermediate(problem.flag("intermediate")),
      stochastic(problem.choice("rounding") == kRoundings[1]) {}

}  // namespace ssmbench
