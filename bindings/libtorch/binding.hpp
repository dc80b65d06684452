// bindings/libtorch/binding.hpp - the module's tensors and the layer's flat memory, held together.
//
//   module tensor  --set_data-->  view of parameter(i)
//   tensor.grad    --preset---->  view of gradient(i)          f32: autograd adds in place
//                  --hook------>  gradient(i) += grad; drop it  16 bits: gradients are kept in f32. zero 2: the
//                                                               layer has them until they are reduced
//
// While a parameter's next value is on its way its tensor is *closed*: of the same shape, one NaN
// in all places. Nobody can read an old value, or one that has half landed.
//
// With zero 3 a parameter has memory only while somebody uses it, elsewhere each time. Graphs hold its
// storage, so that is kept, and what it points to is changed: to the gathered values, or to NaN (nan_region.hpp).
//
// Tied tensors are one entry with several members: the same tensor object under two names, or two
// objects over one storage, each of which has an accumulator, and so a hook, of its own.
//
// Thread-safety  one thread at a time; hooks run in the thread that runs backward.
#pragma once

#include <torch/torch.h>

#include <functional>
#include <memory>
#include <string>
#include <unordered_map>
#include <vector>

#include "nan_region.hpp"
#include "tutti/train.hpp"

namespace tutti::libtorch {

class Binding {
 public:
  using GroupOf = std::function<int(const std::string&, const torch::Tensor&)>;
  using PlaceOf = std::function<train::ParameterPlace(const std::string&, const torch::Tensor&)>;

  using IsUnit = std::function<bool(const torch::nn::Module&)>;

  // invalid_argument names a parameter that cannot be flattened.
  static Result<std::unique_ptr<Binding>> collect(torch::nn::Module& module);
  ~Binding();

  // What the layer is created from, one for each entry.
  std::vector<train::Parameter> parameters(const GroupOf& group_of, const PlaceOf& place_of,
                                           const IsUnit& is_unit) const;
  // From here on tensors are views of the layer's memory, and hooks tell it of gradients.
  Status attach(train::DataParallel& layer);
  // After the layer moved its memory.
  void set_views();
  // Whether it may be read.
  void set_open(std::size_t index, bool open);
  bool is_open(std::size_t index) const { return entries_[index].is_open; }
  // Every tensor gets memory of its own again, with the value it has.
  void detach();

  // invalid_argument names a parameter or gradient that is no longer the layer's view. Gradients
  // that were dropped (zero_grad(set_to_none)) are put back.
  Status check_views();
  // invalid_argument names a parameter whose gradient somebody changed after it was there.
  Status check_gradients();

  // Indices of all parameters below `module`; null: it is not part of the wrapped one.
  const std::vector<std::size_t>* below(const torch::nn::Module& module) const;
  // parameters().size() when it is none of them.
  std::size_t index_of(const torch::Tensor& tensor) const;
  // Of the parameter for which this node adds up gradients; size() when it is none of them.
  std::size_t index_of(const torch::autograd::Node& accumulator) const;
  std::size_t size() const { return entries_.size(); }
  // That all of them are on; the CPU, where there are none.
  torch::Device device() const {
    return entries_.empty() ? torch::Device(torch::kCPU) : entries_[0].members[0].tensor.device();
  }
  const std::string& name(std::size_t index) const { return entries_[index].members[0].name; }

 private:
  struct Member {
    std::string name;
    torch::Tensor tensor;
    std::shared_ptr<torch::autograd::Node> accumulator;  // kept alive, or its hook is lost
    bool is_alias_object = false;                        // same tensor object as an earlier member
    torch::Tensor open, closed;                          // what set_data alternates between
  };
  struct Entry {
    std::vector<Member> members;
    torch::Tensor gradient;  // f32, of the first member's shape; undefined when frozen or empty
    torch::Tensor nan;       // one number; what members read while they are closed
    std::int64_t gradient_version =
        -1;  // torch's count of its changes when it came; -1: it has not
    bool frozen = true;
    bool is_open = true;
  };
  class ReadyHook;

  Status add(const std::string& name, torch::Tensor tensor);
  Status refuse_overlaps() const;
  void index_modules(torch::nn::Module& module);
  void add_hooks(std::size_t index);
  void on_gradient(std::size_t index, Member& member, bool defined);
  void set_view(std::size_t index);
  void preset_gradient(const Entry& entry, Member& member);
  Status check_entry(std::size_t index);
  bool keeps_gradients() const;
  void point_to(const Entry& entry, void* data);
  void leave_nan(const Entry& entry);

  std::vector<Entry> entries_;
  std::unordered_map<const void*, std::size_t> by_object_;  // TensorImpl
  std::unordered_map<const void*, std::size_t> by_address_;
  std::unordered_map<const torch::nn::Module*, std::vector<std::size_t>> by_module_;
  std::unordered_map<const torch::autograd::Node*, std::size_t> by_accumulator_;
  std::vector<std::shared_ptr<torch::nn::Module>> modules_;  // the outermost first
  std::shared_ptr<NanRegion> nan_;                           // with zero 3
  train::DataParallel* layer_ = nullptr;
  std::shared_ptr<Binding*> self_;  // what hooks hold; null after detach
};

}  // namespace tutti::libtorch
