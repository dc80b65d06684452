// A program, and not a library, because code for programs is compiled otherwise: what they share has to be
// compiled as they are.
int main() { return 0; }
