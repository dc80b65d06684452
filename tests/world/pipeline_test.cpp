// Pipelines of arithmetic stages, in every kind of world: whatever the schedule, they give the bits of the
// plain loop over the whole model. And they end, with a word, when a stage does.
#include "tutti/pipeline.hpp"

#include <signal.h>
#include <unistd.h>

#include <cmath>
#include <filesystem>
#include <set>
#include <thread>

#include "support/worlds.hpp"
#include "trace/trace_file.hpp"

namespace tutti::test {
namespace {

using namespace tutti::pipeline;
using std::chrono::milliseconds;

constexpr std::size_t kSecond = 5;  // elements of the second tensor that crosses a boundary, in f64
// Of the first: one that goes into a message as it is, and one that is read where it lies.
constexpr std::size_t kNarrow = 37, kWide = 20'011;
constexpr PipelineKind kTraining[] = {PipelineKind::gpipe, PipelineKind::one_f_one_b,
                                      PipelineKind::interleaved, PipelineKind::zb_h1};

std::vector<std::vector<BoundaryTensor>> boundaries(std::size_t width = kNarrow) {
  return {{{width, Dtype::f32}, {kSecond, Dtype::f64}}};
}

// One place of the model: a band matrix times x, in arithmetic that rounds differently in every order,
// with the gradients that belong to it.
struct Layer {
  std::vector<float> weight, gradient;

  Layer(int place, std::size_t width) : weight(width), gradient(width, 0.0F) {
    for (std::size_t i = 0; i < width; ++i)
      weight[i] =
          0.7F + 0.01F * static_cast<float>((i * 7 + static_cast<std::size_t>(place) * 13) % 29);
  }
  std::size_t width() const { return weight.size(); }
  void forward(const float* x, const double* extra, float* y, double* extra_out) const {
    for (std::size_t i = 0; i < width(); ++i) y[i] = weight[i] * x[i] + 0.1F * x[(i + 1) % width()];
    for (std::size_t i = 0; i < kSecond; ++i) extra_out[i] = extra[i] * 1.1 + y[i];
  }
  void backward_input(const float* dy, const double* d_extra_out, float* dx,
                      double* d_extra) const {
    for (std::size_t i = 0; i < width(); ++i) dx[i] = 0;
    for (std::size_t i = 0; i < width(); ++i) {
      const float whole = whole_gradient(dy, d_extra_out, i);
      dx[i] += weight[i] * whole;
      dx[(i + 1) % width()] += 0.1F * whole;
    }
    for (std::size_t i = 0; i < kSecond; ++i) d_extra[i] = d_extra_out[i] * 1.1;
  }
  void backward_weight(const float* x, const float* dy, const double* d_extra_out) {
    for (std::size_t i = 0; i < width(); ++i)
      gradient[i] += x[i] * whole_gradient(dy, d_extra_out, i);
  }

 private:
  static float whole_gradient(const float* dy, const double* d_extra_out, std::size_t i) {
    return i < kSecond ? dy[i] + static_cast<float>(d_extra_out[i]) : dy[i];
  }
};

struct Activation {
  explicit Activation(std::size_t width) : first(width), second(kSecond) {}
  std::vector<float> first;
  std::vector<double> second;
};

Activation sample(int step, int micro_batch, std::size_t width) {
  Activation x(width);
  for (std::size_t i = 0; i < width; ++i)
    x.first[i] = std::sin(static_cast<float>(1 + i + 17 * static_cast<std::size_t>(micro_batch) +
                                             101 * static_cast<std::size_t>(step)));
  for (std::size_t i = 0; i < kSecond; ++i) x.second[i] = 0.25 * static_cast<double>(i);
  return x;
}

// The loss is half the square of what comes out: its gradient is what came out.
float loss_of(const Activation& y) {
  float loss = 0;
  for (const float value : y.first) loss += 0.5F * value * value;
  return loss;
}

// The whole model in one place, micro-batch by micro-batch: the reference.
struct Reference {
  std::vector<Layer> layers;
  std::vector<float> losses;

  Reference(int places, int micro_batches, int steps, std::size_t width = kNarrow) {
    for (int place = 0; place < places; ++place) layers.emplace_back(place, width);
    for (int step = 0; step < steps; ++step)
      for (int i = 0; i < micro_batches; ++i) train(sample(step, i, width));
  }
  void train(const Activation& first) {
    std::vector<Activation> x{first};
    for (const Layer& layer : layers) {
      Activation y(layer.width());
      layer.forward(x.back().first.data(), x.back().second.data(), y.first.data(), y.second.data());
      x.push_back(y);
    }
    losses.push_back(loss_of(x.back()));
    Activation d = x.back();
    d.second.assign(kSecond, 0.0);
    for (std::size_t place = layers.size(); place-- > 0;) {
      Activation dx(layers[place].width());
      layers[place].backward_input(d.first.data(), d.second.data(), dx.first.data(),
                                   dx.second.data());
      layers[place].backward_weight(x[place].first.data(), d.first.data(), d.second.data());
      d = dx;
    }
  }
};

float* first_of(std::span<const Buffer> buffers) { return static_cast<float*>(buffers[0].data); }
double* second_of(std::span<const Buffer> buffers) { return static_cast<double*>(buffers[1].data); }

// A rank's layers. Checks by the way what the runner promises of its buffers: what came in stays as it
// is until the micro-batch's last op.
class Stages : public StageCompute {
 public:
  Stages(const PipelineShape& shape, int rank, std::size_t width = kNarrow)
      : shape_(shape),
        width_(width),
        kept_(static_cast<std::size_t>(shape.virtual_stages * shape.micro_batches), Kept(width)) {
    for (int i = 0; i < shape.virtual_stages; ++i) layers.emplace_back(shape.place(rank, i), width);
  }

  Status forward(const StagePass& pass) override {
    if (pause.count() > 0) std::this_thread::sleep_for(pause);
    Kept& kept = kept_of(pass);
    kept.x = pass.is_first_place ? sample(step, pass.micro_batch, width_) : read(pass.input);
    addresses.insert(pass.is_first_place ? nullptr : pass.input[0].data);
    EXPECT_EQ(pass.input.empty(), pass.is_first_place);
    EXPECT_EQ(pass.output.empty(), pass.is_last_place);
    layer(pass).forward(kept.x.first.data(), kept.x.second.data(), kept.y.first.data(),
                        kept.y.second.data());
    if (pass.is_last_place)
      losses.push_back(loss_of(kept.y));
    else
      write(kept.y, pass.output);
    return {};
  }
  Status backward(const StagePass& pass) override {
    if (Status status = backward_input(pass); !status.ok()) return status;
    return backward_weight(pass);
  }
  Status backward_input(const StagePass& pass) override {
    const Activation dy = gradient_of(pass);
    Activation dx(width_);
    layer(pass).backward_input(dy.first.data(), dy.second.data(), dx.first.data(),
                               dx.second.data());
    EXPECT_EQ(pass.input_gradient.empty(), pass.is_first_place);
    if (!pass.is_first_place) write(dx, pass.input_gradient);
    return {};
  }
  Status backward_weight(const StagePass& pass) override {
    const Activation dy = gradient_of(pass);
    if (!pass.is_first_place) {
      EXPECT_EQ(read(pass.input).first, kept_of(pass).x.first) << "the input did not stay";
    }
    layer(pass).backward_weight(kept_of(pass).x.first.data(), dy.first.data(), dy.second.data());
    last_seen += pass.is_last_micro_batch ? 1 : 0;
    return {};
  }

  std::vector<Layer> layers;  // by virtual stage
  std::vector<float> losses;
  std::set<const void*> addresses;
  int step = 0;
  int last_seen = 0;
  milliseconds pause{0};  // in every forward of this rank

 private:
  struct Kept {
    explicit Kept(std::size_t width) : x(width), y(width) {}
    Activation x, y;
  };
  Kept& kept_of(const StagePass& pass) {
    return kept_[static_cast<std::size_t>(pass.virtual_stage * shape_.micro_batches +
                                          pass.micro_batch)];
  }
  Layer& layer(const StagePass& pass) {
    return layers[static_cast<std::size_t>(pass.virtual_stage)];
  }
  static Activation read(std::span<const Buffer> buffers) {
    Activation values(buffers[0].count);
    values.first.assign(first_of(buffers), first_of(buffers) + buffers[0].count);
    values.second.assign(second_of(buffers), second_of(buffers) + kSecond);
    return values;
  }
  static void write(const Activation& values, std::span<const Buffer> buffers) {
    std::copy(values.first.begin(), values.first.end(), first_of(buffers));
    std::copy(values.second.begin(), values.second.end(), second_of(buffers));
  }
  Activation gradient_of(const StagePass& pass) {
    EXPECT_EQ(pass.output_gradient.empty(), pass.is_last_place);
    if (!pass.is_last_place) return read(pass.output_gradient);
    Activation dy = kept_of(pass).y;
    dy.second.assign(kSecond, 0.0);
    return dy;
  }

  PipelineShape shape_;
  std::size_t width_;
  std::vector<Kept> kept_;
};

std::unique_ptr<PipelineRunner> make(Group& group, PipelineKind kind, int micro_batches,
                                     int virtual_stages = 1, std::size_t width = kNarrow) {
  PipelineOptions options;
  options.kind = kind;
  options.micro_batches = micro_batches;
  options.virtual_stages = virtual_stages;
  options.boundaries = boundaries(width);
  auto runner = PipelineRunner::create(group, options);
  EXPECT_TRUE(runner.ok()) << runner.status().to_string();
  return runner.ok() ? *std::move(runner) : nullptr;
}

// Several steps; afterwards losses and gradients are the reference's, to the bit.
void train(Context& here, PipelineKind kind, int micro_batches, int virtual_stages,
           milliseconds pause = {}, std::size_t width = kNarrow) {
  SCOPED_TRACE(std::string(to_string(kind)) + ", " + std::to_string(micro_batches) +
               " micro-batches, v = " + std::to_string(virtual_stages));
  constexpr int kSteps = 3;
  auto runner = make(*here.group, kind, micro_batches, virtual_stages, width);
  ASSERT_TRUE(runner);
  const PipelineShape& shape = runner->program().shape;
  Stages stages(shape, here.rank, width);
  stages.pause = pause;
  std::set<const void*> seen;
  for (stages.step = 0; stages.step < kSteps; ++stages.step) {
    const auto times = runner->run(stages);
    ASSERT_TRUE(times.ok()) << times.status().to_string();
    EXPECT_LE(times->busy_s + times->waiting_s + times->bubble_s, times->step_s + 1e-9);
    EXPECT_EQ(runner->slices().size(),
              static_cast<std::size_t>(micro_batches * virtual_stages *
                                       (kind == PipelineKind::zb_h1 ? 3 : 2)));
    if (stages.step == 0) seen = stages.addresses;
    EXPECT_EQ(stages.addresses, seen) << "buffers are the same in every step";
  }
  EXPECT_EQ(stages.last_seen, kSteps * virtual_stages);
  const Reference reference(shape.places(), micro_batches, kSteps, width);
  for (int i = 0; i < virtual_stages; ++i)
    EXPECT_EQ(stages.layers[static_cast<std::size_t>(i)].gradient,
              reference.layers[static_cast<std::size_t>(shape.place(here.rank, i))].gradient);
  if (here.rank + 1 < here.size) return;
  EXPECT_EQ(stages.losses, reference.losses);
}

class Pipelines : public WorldTest {};

TEST_P(Pipelines, give_the_bits_of_the_plain_loop_whatever_the_schedule) {
  in_world([](Context& here) {
    for (const PipelineKind kind : kTraining)
      for (const int micro_batches : {1, 2, here.size, 2 * here.size + 1})
        train(here, kind, micro_batches, 1);
    for (const int virtual_stages : {2, 3})
      for (const int micro_batches : {1, here.size, here.size + 1})
        train(here, PipelineKind::interleaved, micro_batches, virtual_stages);
  });
}

TEST_P(Pipelines, move_large_tensors_as_well) {
  in_world([](Context& here) {
    for (const PipelineKind kind : kTraining)
      train(here, kind, 3, kind == PipelineKind::interleaved ? 2 : 1, {}, kWide);
  });
}

// The slow one is first, in the middle or last: all others wait, nothing else changes.
TEST_P(Pipelines, do_not_depend_on_how_long_a_stage_takes) {
  in_world([](Context& here) {
    int slow = 0;
    for (const PipelineKind kind : kTraining)
      train(here, kind, here.size + 2, kind == PipelineKind::interleaved ? 2 : 1,
            milliseconds(here.rank == slow++ % here.size ? 1 : 0));
  });
}

TEST_P(Pipelines, evaluate_without_a_backward) {
  in_world([](Context& here) {
    for (const int virtual_stages : {1, 2}) {
      auto runner = make(*here.group, PipelineKind::forward, 5, virtual_stages, kWide);
      ASSERT_TRUE(runner);
      const PipelineShape& shape = runner->program().shape;
      Stages stages(shape, here.rank, kWide);
      const auto times = runner->run(stages);
      ASSERT_TRUE(times.ok()) << times.status().to_string();
      const bool has_loss = here.rank + 1 == here.size;
      EXPECT_EQ(stages.losses,
                has_loss ? Reference(shape.places(), 5, 1, kWide).losses : std::vector<float>());
      EXPECT_EQ(stages.last_seen, 0);
    }
  });
}

TEST_P(Pipelines, of_several_groups_do_not_mix_their_messages) {
  in_world([](Context& here) {
    auto one = make(*here.group, PipelineKind::one_f_one_b, 4);
    auto two = make(*here.group, PipelineKind::zb_h1, 3);
    ASSERT_TRUE(one && two);
    Stages first(one->program().shape, here.rank), second(two->program().shape, here.rank);
    for (int step = 0; step < 2; ++step) {
      first.step = second.step = step;
      ASSERT_TRUE(one->run(first).ok());
      ASSERT_TRUE(two->run(second).ok());
    }
    const auto rank = static_cast<std::size_t>(here.rank);
    EXPECT_EQ(first.layers[0].gradient, Reference(here.size, 4, 2).layers[rank].gradient);
    EXPECT_EQ(second.layers[0].gradient, Reference(here.size, 3, 2).layers[rank].gradient);
  });
}

// What of a wait was the neighbour's and what the wire's: stages that wait for a slow one say bubble. It
// does not begin before they are about to wait.
TEST_P(Pipelines, call_waiting_for_a_slow_neighbour_a_bubble) {
  class Slow : public Stages {
   public:
    using Stages::Stages;
    Context* here = nullptr;
    Status forward(const StagePass& pass) override {
      if (pass.micro_batch == 0 && pass.is_first_place) meet(*here);
      return Stages::forward(pass);
    }
  };
  in_world([](Context& here) {
    auto runner = make(*here.group, PipelineKind::one_f_one_b, 4);
    ASSERT_TRUE(runner);
    Slow stages(runner->program().shape, here.rank);
    stages.here = &here;
    stages.pause = milliseconds(here.rank == 0 ? 25 : 0);
    if (here.rank > 0) meet(here);
    const auto times = runner->run(stages);
    ASSERT_TRUE(times.ok());
    EXPECT_GE(here.rank == 0 ? times->busy_s : times->bubble_s, here.rank == 0 ? 0.1 : 0.02);
  });
}

INSTANTIATE_TEST_SUITE_P(World, Pipelines,
                         testing::Values(World{.kind = WorldKind::threads, .size = 1},
                                         World{.kind = WorldKind::threads, .size = 4},
                                         World{.kind = WorldKind::shm, .size = 2},
                                         World{.kind = WorldKind::shm, .size = 3},
                                         World{.kind = WorldKind::tcp, .size = 3},
                                         World{.kind = WorldKind::mixed, .size = 4}),
                         name_of);

// ---- what a trace tells of it

TEST(PipelineTraces, tell_what_was_computed_and_the_bubble) {
  char folder[] = "/tmp/tutti-pipeline-XXXXXX";
  ASSERT_NE(::mkdtemp(folder), nullptr);
  World world{.kind = WorldKind::threads, .size = 2};
  world.tune = [&](Config& config) { config.trace_dir = folder; };
  run(world, [](Context& here) {
    auto runner = make(*here.group, PipelineKind::one_f_one_b, 3);
    ASSERT_TRUE(runner);
    Stages stages(runner->program().shape, here.rank);
    stages.pause = milliseconds(here.rank);
    ASSERT_TRUE(runner->run(stages).ok());
  });
  for (const auto& file : std::filesystem::directory_iterator(folder)) {
    const auto trace = trace::read_trace(file.path());
    ASSERT_TRUE(trace.ok()) << trace.status().to_string();
    std::vector<std::string> computed, missing;
    for (const auto& each : trace->compute) computed.push_back(trace->text(each.name));
    for (const auto& each : trace->bubbles) missing.push_back(trace->text(each.name));
    if (trace->rank == 0) {  // it waits for the backward of a stage that sleeps
      EXPECT_EQ(computed, (std::vector<std::string>{"forward 0", "forward 1", "backward 0",
                                                    "forward 2", "backward 1", "backward 2"}));
      EXPECT_THAT(missing, testing::Contains("recv_gradient 0 from stage 1"));
    } else {
      EXPECT_EQ(computed.size(), 6U);
    }
  }
  std::filesystem::remove_all(folder);
}

// ---- what does not fit

TEST(PipelineMismatch, of_what_ranks_ask_for_fails_on_every_rank_and_names_both) {
  run(World{.kind = WorldKind::threads, .size = 3}, [](Context& here) {
    PipelineOptions options;
    options.micro_batches = here.rank == 2 ? 8 : 4;
    options.boundaries = boundaries();
    const Status status = PipelineRunner::create(*here.group, options).status();
    EXPECT_EQ(status.code(), Code::mismatch);
    EXPECT_NE(status.message().find("stage 2 was given 1f1b, 8 micro-batches"), std::string::npos)
        << status.to_string();
    EXPECT_NE(status.message().find("stage 0 1f1b, 4 micro-batches"), std::string::npos);
    options.micro_batches = 4;
    options.boundaries[0][0].dtype = here.rank == 1 ? Dtype::i32 : Dtype::f32;
    EXPECT_EQ(PipelineRunner::create(*here.group, options).status().code(), Code::mismatch);
    EXPECT_TRUE(here.group->barrier().ok());
  });
}

TEST(PipelineMismatch, of_what_does_not_exist_is_refused) {
  run(World{.kind = WorldKind::threads, .size = 2}, [](Context& here) {
    const auto refused = [&](PipelineOptions options) {
      return PipelineRunner::create(*here.group, std::move(options)).status();
    };
    const Status virtual_stages =
        refused({.kind = PipelineKind::gpipe, .virtual_stages = 2, .boundaries = boundaries()});
    EXPECT_EQ(virtual_stages.code(), Code::invalid_argument);
    EXPECT_EQ(refused({}).code(), Code::invalid_argument);
    EXPECT_EQ(refused({.boundaries = {{}}}).code(), Code::invalid_argument);
    EXPECT_EQ(refused({.micro_batches = 0, .boundaries = boundaries()}).code(),
              Code::invalid_argument);
  });
}

// Two parts of backward are not made up where there is one.
TEST(PipelineMismatch, of_a_schedule_that_the_stages_cannot_do_is_told_on_every_rank) {
  class Whole : public StageCompute {
    Status forward(const StagePass&) override { return {}; }
    Status backward(const StagePass&) override { return {}; }
  };
  run(World{.kind = WorldKind::threads, .size = 2}, [](Context& here) {
    auto runner = make(*here.group, PipelineKind::zb_h1, 2);
    ASSERT_TRUE(runner);
    Whole stages;
    const Status status = runner->run(stages).status();
    EXPECT_NE(status.message().find("the stages have no backward_input, which zb-h1 needs"),
              std::string::npos)
        << status.to_string();
    EXPECT_EQ(status.code(), here.rank == 1 ? Code::unsupported : Code::aborted);
  });
}

// ---- faults

// Does not come back from the given call.
class Doomed : public Stages {
 public:
  using Stages::Stages;
  std::function<Status()> at_forward_of_2;
  Status forward(const StagePass& pass) override {
    if (pass.micro_batch == 2 && step == 1)
      if (Status status = at_forward_of_2(); !status.ok()) return status;
    return Stages::forward(pass);
  }
};

class PipelineFaults : public WorldTest {};

void expect_named(const Status& status, int rank, int victim) {
  EXPECT_NE(status.message().find("stage " + std::to_string(rank) + " of "), std::string::npos)
      << status.to_string();
  EXPECT_NE(status.message().find("stage " + std::to_string(victim)), std::string::npos)
      << status.to_string();
  EXPECT_NE(status.message().find("of micro-batch "), std::string::npos) << status.to_string();
}

TEST_P(PipelineFaults, a_stage_that_dies_is_named_on_every_rank) {
  in_world([](Context& here) {
    const int victim = here.world.doomed.front();
    auto runner = make(*here.group, PipelineKind::one_f_one_b, 6);
    ASSERT_TRUE(runner);
    Doomed stages(runner->program().shape, here.rank);
    stages.at_forward_of_2 = [&]() -> Status {
      if (here.rank == victim) kill(getpid(), SIGKILL);
      return {};
    };
    Status status;
    for (stages.step = 0; stages.step < 4 && status.ok(); ++stages.step)
      status = runner->run(stages).status();
    EXPECT_EQ(status.code(), Code::peer_lost) << status.to_string();
    EXPECT_EQ(status.peer(), victim);
    expect_named(status, here.rank, victim);
    EXPECT_NE(status.message().find("lost stage " + std::to_string(victim)), std::string::npos);
    EXPECT_EQ(runner->run(stages).status().code(), Code::peer_lost);
  });
}

INSTANTIATE_TEST_SUITE_P(World, PipelineFaults,
                         testing::ValuesIn(each_victim_in({{.kind = WorldKind::shm, .size = 3},
                                                           {.kind = WorldKind::tcp, .size = 3},
                                                           {.kind = WorldKind::mixed, .size = 4}})),
                         name_of);

TEST(PipelineFaults, a_stage_that_fails_ends_the_run_on_every_rank_with_its_reason) {
  for (const WorldKind kind : {WorldKind::threads, WorldKind::shm})
    for (const PipelineKind schedule : kTraining)
      run(World{.kind = kind, .size = 3}, [&](Context& here) {
        auto runner = make(*here.group, schedule, 5);
        ASSERT_TRUE(runner);
        Doomed stages(runner->program().shape, here.rank);
        stages.at_forward_of_2 = [&]() -> Status {
          if (here.rank == 1) return {Code::corrupt, "the data are gone"};
          return {};
        };
        Status status;
        for (stages.step = 0; stages.step < 4 && status.ok(); ++stages.step)
          status = runner->run(stages).status();
        EXPECT_EQ(status.code(), here.rank == 1 ? Code::corrupt : Code::aborted);
        EXPECT_NE(
            status.message().find("stage 1 of 3: forward of micro-batch 2: the data are gone"),
            std::string::npos)
            << status.to_string();
        expect_named(status, here.rank, 1);
        EXPECT_TRUE(here.group->barrier().ok()) << "the caller's group goes on";
      });
}

TEST(PipelineFaults, a_stage_that_is_late_is_named_within_the_timeout) {
  run(World{.kind = WorldKind::shm, .size = 2}, [](Context& here) {
    PipelineOptions options;
    options.micro_batches = 3;
    options.boundaries = boundaries();
    options.timeout = milliseconds(200);
    auto runner = PipelineRunner::create(*here.group, options);
    ASSERT_TRUE(runner.ok());
    Doomed stages((*runner)->program().shape, here.rank);
    stages.step = 1;
    stages.at_forward_of_2 = [&]() -> Status {
      return here.rank == 0 ? here.store->wait("given up", std::chrono::seconds(30)) : Status();
    };
    const Status status = (*runner)->run(stages).status();
    if (here.rank == 1) {
      EXPECT_TRUE(here.store->set("given up", "").ok());
      EXPECT_EQ(status.code(), Code::timed_out) << status.to_string();
      EXPECT_NE(status.message().find("recv_activation of micro-batch 2 from stage 0"),
                std::string::npos)
          << status.to_string();
    } else {
      EXPECT_FALSE(status.ok());
      expect_named(status, 0, 1);
    }
  });
}

}  // namespace
}  // namespace tutti::test
