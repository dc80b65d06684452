#include <stdio.h>

#include "tutti/tutti.h"

int main(void) {
  float values[3] = {1, 2, 3};
  tutti_group* group = NULL;
  tutti_status* status = tutti_group_from_environment(NULL, &group);
  if (!status) status = tutti_all_reduce(group, values, values, 3, TUTTI_F32, TUTTI_SUM, NULL);
  if (status) return puts(tutti_status_message(status)), 1;
  printf("%d rank: %g %g %g\n", tutti_group_size(group), values[0], values[1], values[2]);
  tutti_group_destroy(group);
  return 0;
}
