// replica.hpp - a torch.nn.Module on the training layer: tutti::libtorch::DataParallel for a module whose forward is
// Python's.
//
// The layer needs a module's tensors and their names, and Python's are the same at::Tensors: a tree of
// torch::nn::Modules without a forward stands for the module. Gates are numbers that Python's hooks pass.
//
// Thread-safety  one thread at a time for each object; autograd may run in its own.
// Failure        thrown as Failure.
#pragma once

#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "backend.hpp"
#include "tutti/libtorch.hpp"

namespace tutti_torch {

using NamedTensor = std::pair<std::string, at::Tensor>;

// One module's own tensors, and its children's places in the list that it is in; they stand before it.
struct ModuleParts {
  std::vector<NamedTensor> parameters;
  std::vector<NamedTensor> buffers;
  std::vector<std::pair<std::string, std::size_t>> children;
  bool is_unit = false;
};

// Buffers are replaced in Python as they are changed: the tree has tensors of its own over their memory.
class ModuleTree {
 public:
  // The last one is the root.
  explicit ModuleTree(const std::vector<ModuleParts>& parts);
  const std::shared_ptr<torch::nn::Module>& root() const { return modules_.back(); }
  bool is_unit(const torch::nn::Module& module) const;
  // As they are now, in the order of the parts.
  void set_buffers(const std::vector<at::Tensor>& buffers);

 private:
  std::vector<std::shared_ptr<torch::nn::Module>> modules_;
  std::vector<const torch::nn::Module*> units_;
  std::vector<at::Tensor> buffers_;
};

// All of one parameter's state, by the layer's names.
using ParameterState = std::map<std::string, at::Tensor>;

class TorchReplica {
 public:
  // Blocks until all ranks of the group do the same. `groups`: each parameter's group, by its name.
  TorchReplica(Backend& group, const std::vector<ModuleParts>& modules,
               const std::map<std::string, int>& groups, tutti::libtorch::Options options);
  ~TorchReplica();

  // By name and other names, the parameter's number.
  std::map<std::string, std::size_t> parameters() const;
  // Makes a gate of these parameters.
  std::size_t add_gate(std::vector<std::size_t> parameters);
  void need(std::size_t gate);
  void done(std::size_t gate);
  void set_buffers(const std::vector<at::Tensor>& buffers) { tree_->set_buffers(buffers); }

  void begin_micro_batch(bool last);
  void check_gates(const std::vector<at::Tensor>& outputs);
  void begin_backward();
  void end_backward();
  tutti::train::StepReport step(const tutti::train::StepInput& input);
  void discard_gradients();
  void parameters_ready();
  void adopt_parameters();

  // Of the newest step of which every rank's times are here; absent: of none yet.
  std::optional<tutti::train::StepOverlap> overlap();
  tutti::train::DataParallel& layer() const;

  // Collective. Of every parameter, in host memory.
  std::vector<ParameterState> state();
  // Collective: all ranks give the same. `steps`: how often each parameter was updated.
  void set_state(const std::vector<ParameterState>& state, const std::vector<std::int64_t>& steps);

  void save(const std::string& folder, tutti::train::CheckpointInfo info, int keep);
  tutti::train::CheckpointInfo load(const std::string& path);
  // Tensors get memory of their own, with the values they have.
  void close();

 private:
  tutti::libtorch::DataParallel& model() const;
  void make_meter(tutti::Group& group);
  void publish_times();
  static bool has_ended(const tutti::Status& status);

  std::unique_ptr<ModuleTree> tree_;
  std::shared_ptr<tutti::libtorch::DataParallel> model_;  // null: closed
  std::unique_ptr<tutti::train::OverlapMeter> meter_;     // null: there is one rank
  std::optional<tutti::train::StepOverlap> overlap_;
  std::vector<std::vector<std::size_t>> gates_;
  int published_ = 0;  // and not taken
  std::int64_t step_ = 0;
};

}  // namespace tutti_torch
