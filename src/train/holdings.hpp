// train/holdings.hpp - which rank holds which elements of the model's tensors, as all of them know it.
//
// A tensor of the whole model is here what ranks hold of it together: boxes of it, of each box a range of
// elements. What other data groups hold, too (ParameterPlace::counted), is listed once.
//
// Ordering       exchange_holdings and collect are collective among everyone.
// Failure        invalid_argument names the tensor whose boxes do not make up the whole, or that two ranks
//                describe differently; the same on every rank.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "train/tensor_box.hpp"
#include "tutti/group.hpp"
#include "tutti/train/data_parallel.hpp"

namespace tutti::train {

// Elements [first, first + count) of a box.
struct Holding {
  TensorBox box;
  std::size_t first = 0;
  std::size_t count = 0;
};

struct HeldTensor {
  std::string name;
  Dtype dtype = Dtype::f32;
  std::vector<std::int64_t> shape;  // of the whole
  std::vector<std::string> aliases;
  std::vector<std::vector<Holding>> ranks;  // by rank: what each answers for
  // Ranks of the data groups that hold it. Each of them may have copies of what others answer for.
  std::vector<int> owners;

  std::size_t count() const { return count_of(shape); }
  // Some rank has a part that is not the whole: then no rank is sure to have all of it.
  bool is_cut() const;
};

// Tensors by name; holdings are what DataParallel::weights lists, of parameters that count.
Result<std::vector<HeldTensor>> exchange_holdings(DataParallel& model);

// Puts a tensor together on `root`, in `whole`, which is empty on other ranks. `mine`: this rank's elements
// of it, one holding after the other.
Status collect(Group& group, const HeldTensor& tensor, ConstBuffer mine, int root, Buffer whole);
// The same of what the model has now. `unread`: what this rank could not read of its own, if anything; the others go on.
Status collect(DataParallel& model, const HeldTensor& tensor, int root, Buffer whole,
               Status& unread);

}  // namespace tutti::train
