#include "ops/mamba3/tensors.h"

#include <fmt/format.h>

#include <numeric>

#include "ops/mamba3/mamba3.h"

namespace ssmbench {
namespace {

/// Makes tensors in C order from one letter per axis.
class Tensors {
 public:
  explicit Tensors(const Problem& problem) : scan_(problem), io_(problem.dtype()) {}

  std::vector<TensorSpec> all;

  void add(const std::string& name, Role role, DType dtype, const std::string& axes) {
    Shape shape;
    for (const char letter : axes) shape.push_back(extent(letter));
    std::vector<int> order(shape.size());
    std::iota(order.begin(), order.end(), 0);
    all.push_back({name, role, dtype, std::move(shape), std::move(order), axes});
  }
  void input(const std::string& name, DType dtype, const std::string& axes) {
    add(name, Role::input, dtype, axes);
  }

  /// What a scan and a step share; `time` is "l" or nothing.
  void add_inputs(const std::string& time) {
    const DType f32 = DType::f32;
    const std::string ranks = scan_.is_mimo ? "r" : "";
    const std::string row = fmt::format("b{}hp", time);
    const std::string scalar = "bh" + time;
    for (const char* name : {"Q", "K"}) input(name, io_, fmt::format("b{}{}gn", time, ranks));
    input("V", io_, row);
    input("ADT", f32, scalar);
    input("DT", f32, scalar);
    input("Trap", io_, scalar);
    input("Angles", scan_.is_mimo ? f32 : io_, fmt::format("b{}hs", time));
    for (const char* name : {"Q_bias", "K_bias"}) input(name, f32, fmt::format("h{}n", ranks));
    if (scan_.is_mimo) input("MIMO_V", f32, "hrp");
    if (scan_.is_mimo && scan_.has_z) input("MIMO_Z", f32, "hrp");
    if (scan_.is_mimo && scan_.reduces_ranks) input("MIMO_Out", f32, "hrp");
    if (scan_.has_D) input("D", f32, "h");
    if (scan_.has_z) input("Z", io_, row);
    if (scan_.has_norm) input("outproj_norm_weight", f32, "hp");
  }
  /// All inputs of a scan.
  void add_scan_inputs() {
    add_inputs("l");
    if (scan_.has_cu_seqlens) input("cu_seqlens", DType::i32, "c");
    if (scan_.has_initial_states) add_states("Input_", Role::input, DType::f32);
  }
  /// `name`: out or its cotangent.
  void add_out(const std::string& name, Role role, const std::string& time) {
    add(name, role, io_, fmt::format("b{}{}", time, scan_.reduces_ranks ? "hp" : "rhp"));
  }
  /// The four states; `v_dtype` is that of the last.
  void add_states(const std::string& prefix, Role role, DType v_dtype) {
    const std::string m = scan_.has_cu_seqlens ? "m" : "b";  // sequences
    add(prefix + "Angle_State", role, DType::f32, m + "hs");
    add(prefix + "SSM_State", role, DType::f32, m + "hpn");
    add(prefix + "K_State", role, DType::f32, m + (scan_.is_mimo ? "rhn" : "hn"));
    add(prefix + "V_State", role, v_dtype, m + "hp");
  }

 private:
  std::int64_t extent(char letter) const {
    switch (letter) {
      case 'b':
        return scan_.batch;
      case 'l':
        return scan_.seqlen;
      case 'r':
        return scan_.rank;
      case 'g':
        return scan_.groups;
      case 'h':
        return scan_.nheads;
      case 'p':
        return scan_.headdim;
      case 'n':
        return scan_.dstate;
      case 's':
        return scan_.angles;
      case 'm':
        return scan_.sequences;
      default:  // c: where sequences begin and end
        return scan_.sequences + 1;
    }
  }

  Mamba3 scan_;
  DType io_;
};

}  // namespace

std::vector<TensorSpec> mamba3_fwd_tensors(const Problem& problem) {
  const Mamba3 scan(problem);
  Tensors tensors(problem);
  tensors.add_scan_inputs();
  tensors.add_out("out", Role::output, "l");
  if (scan.has_final_states) tensors.add_states("Final_", Role::output, problem.dtype());
  return tensors.all;
}

std::vector<TensorSpec> mamba3_bwd_tensors(const Problem& problem) {
  const Mamba3 scan(problem);
  Tensors tensors(problem);
  tensors.add_scan_inputs();
  const std::vector<TensorSpec> inputs = tensors.all;
  tensors.add_out("dout", Role::input, "l");
  if (scan.has_final_states) tensors.add_states("dFinal_", Role::input, problem.dtype());
  for (TensorSpec gradient : inputs) {
    if (gradient.dtype == DType::i32) continue;
    gradient.name = "d" + gradient.name;
    gradient.role = Role::output;
    tensors.all.push_back(std::move(gradient));
  }
  return tensors.all;
}

std::vector<TensorSpec> mamba3_step_tensors(const Problem& problem) {
  Tensors tensors(problem);
  tensors.add_states("", Role::input, DType::f32);
  tensors.add_inputs("");
  tensors.add_out("out", Role::output, "");
  tensors.add_states("", Role::output, DType::f32);
  return tensors.all;
}

}  // namespace ssmbench
