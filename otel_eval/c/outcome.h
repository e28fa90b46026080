/* How a step of a shortcut ends: with an exception, with something unusual that Python is to be
 * asked about, or done. */

enum { FAILED = -1, UNUSUAL = 0, DONE = 1 };
