//! What a backend author needs: traits, export macro, host services, helpers.
