package org.phonograd;

import java.io.IOException;
import java.io.InputStream;
import java.io.OutputStream;
import java.lang.reflect.Field;
import java.net.HttpURLConnection;

/** A connection of Java's own that knows PATCH, as Android's does. Needs --add-opens java.base/java.net=ALL-UNNAMED. */
final class PatchingConnection extends HttpURLConnection {
    private final HttpURLConnection own;

    PatchingConnection(HttpURLConnection own) {
        super(own.getURL());
        this.own = own;
    }

    @Override
    public void setRequestMethod(String name) {
        try {
            Field field = HttpURLConnection.class.getDeclaredField("method");
            field.setAccessible(true);
            field.set(own, name);
        } catch (ReflectiveOperationException error) {
            throw new IllegalStateException(error);
        }
    }

    @Override
    public void setRequestProperty(String name, String value) {
        own.setRequestProperty(name, value);
    }

    @Override
    public void setDoOutput(boolean does) {
        own.setDoOutput(does);
    }

    @Override
    public void setFixedLengthStreamingMode(long length) {
        own.setFixedLengthStreamingMode(length);
    }

    @Override
    public OutputStream getOutputStream() throws IOException {
        return own.getOutputStream();
    }

    @Override
    public int getResponseCode() throws IOException {
        return own.getResponseCode();
    }

    @Override
    public String getHeaderField(String name) {
        return own.getHeaderField(name);
    }

    @Override
    public InputStream getInputStream() throws IOException {
        return own.getInputStream();
    }

    @Override
    public InputStream getErrorStream() {
        return own.getErrorStream();
    }

    @Override
    public void connect() throws IOException {
        own.connect();
    }

    @Override
    public void disconnect() {
        own.disconnect();
    }

    @Override
    public boolean usingProxy() {
        return own.usingProxy();
    }
}
