#include <numeric>

#include "mesh/boxes.hpp"
#include "mesh/step_run.hpp"

namespace tutti::mesh {

PartList::PartList(const TensorBox& box, std::vector<TensorBox> parts)
    : box_(box), parts_(std::move(parts)) {
  std::int64_t begin = 0;
  for (const TensorBox& part : parts_) {
    const InOnePiece lies = lies_in(part, box_);
    const std::int64_t count = part.count();
    in_order_ = in_order_ && lies.is && (count == 0 || lies.offset == begin);
    begin += count;
    counts_.push_back(static_cast<std::size_t>(count));
  }
}

std::size_t PartList::count() const {
  return std::accumulate(counts_.begin(), counts_.end(), std::size_t{0});
}

void PartList::pack(const std::byte* box, std::byte* parts, std::size_t element_bytes) const {
  for (std::size_t i = 0; i < parts_.size(); parts += counts_[i++] * element_bytes)
    copy_part(parts_[i], {box_, box}, {parts_[i], parts}, element_bytes);
}

void PartList::unpack(const std::byte* parts, std::byte* box, std::size_t element_bytes) const {
  for (std::size_t i = 0; i < parts_.size(); parts += counts_[i++] * element_bytes)
    copy_part(parts_[i], {parts_[i], parts}, {box_, box}, element_bytes);
}

}  // namespace tutti::mesh
