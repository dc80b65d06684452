// tool/show/sheet.hpp - what the still drawings of `tutti show --svg` share: ranks side by side, time
// downwards, on top what each rank has at first, at the bottom what the collective promises at last.
#pragma once

#include <string>
#include <vector>

#include "schedule/drawing.hpp"

namespace tutti::tool {

class Sheet {
 public:
  static constexpr double kMargin = 16;

  // `left`: room for the words beside the ranks.
  Sheet(std::string title, std::string remark, std::vector<schedule::Cells> cells,
        std::uint64_t extents_per_colour, double left);

  double x(std::size_t rank) const { return left_ + (static_cast<double>(rank) + 0.5) * column_; }
  double column() const { return column_; }
  double left() const { return left_; }
  double width() const { return width_; }
  double top() const { return top_; }  // where time begins
  const char* colour(std::uint64_t extent) const;

  void text(double x, double y, std::string_view kind, std::string_view words);
  // A line below everything, about how to read it. Before the first band.
  void note(const std::string& words);
  // A shaded one for every second call.
  void band(double y, double height);
  void add(std::string_view shapes) { body_ += shapes; }
  // A row of cells around the rank's column.
  void chips(std::size_t rank, double y, const std::vector<const schedule::Cell*>& row, bool full);

  const schedule::Cells& cells_of(std::size_t rank) const { return cells_[rank]; }
  // The cells of a rank that `belongs` says yes to.
  template <class Belongs>
  std::vector<const schedule::Cell*> cells(std::size_t rank, Belongs belongs) const {
    std::vector<const schedule::Cell*> found;
    for (const schedule::Cell& cell : cells_[rank].all())
      if (belongs(cell)) found.push_back(&cell);
    return found;
  }

  // With lines down to `bottom`, where time ends.
  std::string finish(double bottom);

 private:
  std::string title_;
  std::string remark_;
  std::vector<std::string> notes_;
  std::vector<schedule::Cells> cells_;
  std::uint64_t extents_per_colour_;
  double left_, column_, chip_, width_, top_;
  bool shaded_ = false;
  std::string behind_;  // everything else
  std::string body_;
};

}  // namespace tutti::tool
