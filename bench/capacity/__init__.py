"""What a service for many phones needs: measured rates, rounds of thousands of phones, and plans."""
