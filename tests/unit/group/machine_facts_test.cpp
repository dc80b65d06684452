// What makes a machine another one, so that its costs are measured again.
#include "group/machine_facts.hpp"

#include <gtest/gtest.h>

namespace tutti::group {
namespace {

topology::Interface cable(std::vector<std::string> addresses) {
  topology::Interface interface;
  interface.name = "eth0";
  interface.up = true;
  interface.addresses = std::move(addresses);
  return interface;
}

TEST(MachineFacts, an_address_that_an_interface_gave_itself_makes_no_other_machine) {
  const std::string before = network_text({cable({"10.0.0.1"})});
  EXPECT_EQ(network_text({cable({"10.0.0.1", "fe80::a8bb:ccff:fe00:1"})}), before);
  EXPECT_EQ(network_text({cable({"169.254.7.7", "10.0.0.1"})}), before);
  EXPECT_NE(network_text({cable({"10.0.0.2"})}), before);
}

TEST(MachineFacts, only_interfaces_that_are_up_count) {
  topology::Interface down = cable({"10.0.0.1"});
  down.up = false;
  EXPECT_EQ(network_text({down}), "");
}

}  // namespace
}  // namespace tutti::group
