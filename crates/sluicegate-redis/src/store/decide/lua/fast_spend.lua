            -- A refund never lowers a bucket that drains below the end of a lease.
            if mode == LEASE and kind == GCRA then
              floors = (floors or '\0') .. pack('<I7I7B', new_a, new_till, quota + 127)
            end
          end
