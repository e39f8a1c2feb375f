/* Another preloaded library: who looks for this name knows that it is there. */
int other_library_is_here = 1;
