#include "store/trust.hpp"
#include "tutti/store.hpp"

namespace tutti {
namespace {

using std::chrono::milliseconds;

class PrefixStore final : public Store {
 public:
  PrefixStore(std::string prefix, std::shared_ptr<Store> inner)
      : prefix_(std::move(prefix)), inner_(std::move(inner)) {}

  Status set(const std::string& key, const std::string& value) override {
    return inner_->set(prefix_ + key, value);
  }
  Result<std::string> get(const std::string& key, milliseconds timeout) override {
    return inner_->get(prefix_ + key, timeout);
  }
  Status wait(const std::string& key, milliseconds timeout) override {
    return inner_->wait(prefix_ + key, timeout);
  }
  Result<std::int64_t> add(const std::string& key, std::int64_t amount) override {
    return inner_->add(prefix_ + key, amount);
  }
  Result<std::string> compare_set(const std::string& key, const std::string& expected,
                                  const std::string& desired) override {
    return inner_->compare_set(prefix_ + key, expected, desired);
  }
  Result<bool> remove(const std::string& key) override { return inner_->remove(prefix_ + key); }
  const Store& inner() const { return *inner_; }

 private:
  const std::string prefix_;
  const std::shared_ptr<Store> inner_;
};

}  // namespace

inline namespace [[gnu::visibility("default")]] v1 {
std::shared_ptr<Store> make_prefix_store(std::string prefix, std::shared_ptr<Store> inner) {
  return std::make_shared<PrefixStore>(std::move(prefix), std::move(inner));
}
}  // namespace v1

const store::TrustedStore* store::trusted_store(const Store& store) {
  if (const auto* prefixed = dynamic_cast<const PrefixStore*>(&store))
    return trusted_store(prefixed->inner());
  return dynamic_cast<const TrustedStore*>(&store);
}

}  // namespace tutti
