// The stores that keep the contract.
#include <unistd.h>

#include <filesystem>

#include "contract/store_contract.hpp"

namespace tutti::contract {
namespace {

class MemorySite final : public StoreSite {
 public:
  std::shared_ptr<Store> join() override { return store_; }

 private:
  std::shared_ptr<Store> store_ = make_memory_store();
};

class FileSite final : public StoreSite {
 public:
  FileSite() {
    std::string pattern = testing::TempDir() + "tutti-store-XXXXXX";
    folder_ = ::mkdtemp(pattern.data());
  }
  ~FileSite() override { std::filesystem::remove_all(folder_); }
  std::shared_ptr<Store> join() override {
    auto store = open_file_store(folder_ + "/store");
    EXPECT_TRUE(store.ok()) << store.status().to_string();
    return *store;
  }

 private:
  std::string folder_;
};

class ServerSite final : public StoreSite {
 public:
  explicit ServerSite(const std::string& address) {
    auto server = StoreServer::listen(address, "the job's secret");
    EXPECT_TRUE(server.ok()) << server.status().to_string();
    server_ = std::move(*server);
  }
  std::shared_ptr<Store> join() override {
    auto store = connect_store(server_->address(), "the job's secret", kLong);
    EXPECT_TRUE(store.ok()) << store.status().to_string();
    return *store;
  }

 private:
  std::unique_ptr<StoreServer> server_;
};

// Keys outside the prefix are there to be seen if it leaks.
class PrefixSite final : public StoreSite {
 public:
  std::shared_ptr<Store> join() override { return make_prefix_store("group 7/", inner_); }

 private:
  std::shared_ptr<Store> inner_ = [] {
    auto inner = make_memory_store();
    EXPECT_TRUE(inner->set("absent", "of another group").ok());
    EXPECT_TRUE(inner->set("gone", "of another group").ok());
    return inner;
  }();
};

std::string unused_name() { return "@tutti-contract-" + std::to_string(::getpid()); }

INSTANTIATE_TEST_SUITE_P(
    stores, StoreContract,
    testing::Values(StoreKind{"memory", [] { return std::make_unique<MemorySite>(); }},
                    StoreKind{"file", [] { return std::make_unique<FileSite>(); }},
                    StoreKind{"tcp", [] { return std::make_unique<ServerSite>("127.0.0.1:0"); }},
                    StoreKind{"unix", [] { return std::make_unique<ServerSite>(unused_name()); }},
                    StoreKind{"prefix", [] { return std::make_unique<PrefixSite>(); }}),
    [](const auto& info) { return info.param.name; });

}  // namespace
}  // namespace tutti::contract
